"""The kernels of csrc on CPU tensors: compiled by the C++ compiler, threads run as fibers.

See emulator.h for what this finds and what only a GPU shows.
"""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from pcnn.kernels.structs import Module

CSRC = Path(__file__).resolve().parents[2] / "csrc"
HEADER = Path(__file__).with_name("emulator.h")
COMPILER = shutil.which("g++") or shutil.which("c++")


class EmulatedModule(Module):
    """One source file under one set of defines, in the shape of a CUDA module."""

    #: True: the last block runs first. Tickets number tiles as blocks come, so this suits every
    #: kernel; one that relies on the blocks before its own being done gives wrong results.
    descending = False

    def __init__(self, source: str, defines: dict[str, int], library: Path) -> None:
        super().__init__(source, torch.device("cpu"), defines)
        self._library = ctypes.CDLL(str(library))

    def start(self, kernel: str, grid: int, arguments: bytes, shared_bytes: int) -> None:
        assert 0 <= grid < 1 << 31
        assert shared_bytes <= 232448
        function = getattr(self._library, kernel)
        function.restype = ctypes.c_char_p
        size = ctypes.c_longlong(len(arguments))
        error = function(ctypes.c_longlong(grid), arguments, size, int(self.descending))
        if error:
            raise RuntimeError(f"{kernel}: {error.decode()}")


def emulated_module(
    source: str, device: torch.device | None = None, **defines: int
) -> EmulatedModule:
    """Counterpart of `pcnn.kernels.cuda.module` for CPU tensors."""
    return _compiled(source, tuple(sorted(defines.items())))


OPTIONS = ["-std=c++17", "-O1", "-fPIC", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function"]
OPTIONS += ["-U_FORTIFY_SOURCE"]  # it takes a jump to another stack for an error


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / "pcnn-emulator"
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _header() -> Path:
    """emulator.h beside what g++ has precompiled of it: half the time of every source."""
    key = hashlib.sha256(HEADER.read_bytes()).hexdigest()
    place = _folder() / f"header-{key[:20]}"
    if not place.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            built = Path(work) / "header"
            built.mkdir()
            (built / HEADER.name).write_bytes(HEADER.read_bytes())
            command = [str(COMPILER), *OPTIONS, "-x", "c++-header", str(built / HEADER.name)]
            command += ["-o", str(built / f"{HEADER.name}.gch")]  # without it the text is read
            subprocess.run(command, capture_output=True, check=False)
            with suppress(OSError):  # another process was first
                built.rename(place)
    return place / HEADER.name


@cache
def _compiled(source: str, defines: tuple[tuple[str, int], ...]) -> EmulatedModule:
    texts = [path.read_bytes() for path in sorted(CSRC.glob("*.cu*"))] + [HEADER.read_bytes()]
    texts.append((CSRC / source).read_bytes())
    key = hashlib.sha256(b"\0".join([source.encode(), repr(defines).encode(), *texts])).hexdigest()
    library = _folder() / f"{Path(source).stem}-{key[:20]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            built = Path(work) / "library.so"
            command = [COMPILER, *OPTIONS, "-shared", "-x", "c++"]
            command += [f"-D{name}={value}" for name, value in defines]
            command += [f"-I{CSRC}", "-include", str(_header())]
            command += [str(CSRC / source), "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{source} does not compile as C++:\n{done.stderr}")
            built.replace(library)
    return EmulatedModule(source, dict(defines), library)
