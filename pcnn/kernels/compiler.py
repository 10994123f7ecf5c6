"""From a CUDA source to machine code for one architecture, by NVRTC; needs no GPU.

Sources may be compiled ahead of their use, side by side: NVRTC compiles one source at a time in a
process, so every core has a process of its own. A launch that needs a source in the meantime waits
at the cache's lock for the process that compiles it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pcnn.cores import available_cores
from pcnn.kernels.cubin_cache import cached, folder, read
from pcnn.kernels.sources import FOLDER, locate, texts, variants_of
from pcnn.messages import install

STANDARD = "c++17"


def driver_cuda() -> tuple[int, int] | None:
    """Newest CUDA version that the NVIDIA driver serves, ``None`` without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


def extra_for(torch_cuda: str | None, driver: tuple[int, int] | None) -> str | None:
    """Extra with the CUDA bindings that fit: torch's CUDA major, else the driver's."""
    if torch_cuda:
        return f"cu{torch_cuda.split('.')[0]}"
    return f"cu{min(driver[0], 13)}" if driver else None


def require() -> str:
    """Make sure that kernels can be compiled."""
    import torch  # a command that shows its help asks for none

    extra = extra_for(torch.version.cuda, driver_cuda()) or "cu13"
    try:
        importlib.import_module("cuda.core")
        importlib.import_module("cuda.bindings.driver")
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        # the bindings look for the library itself at the first call
        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as failure:
        reason = str(failure).strip().split("\n")[0][:200]
        raise ImportError(
            f"CUDA kernels are compiled at first use, and a package for that is missing: {reason}\n"
            f"{install(extra)} brings it; pcnn doctor checks it."
        ) from failure
    if error:
        raise ImportError(f"NVRTC does not answer ({error.name}): {install(extra)}")
    return f"{major}.{minor}"


class Compiled(NamedTuple):
    """Result of the compiler."""

    cubin: bytes  # machine code, an ELF file
    log: str  # warnings and remarks, empty where there are none


def architecture(capability: tuple[int, int]) -> str:
    """Architecture whose machine code runs on a device of this compute capability.

    Machine code runs on devices of the same major and the same or a newer minor capability. Hopper
    is compiled as ``sm_90a``, which alone has the warp-group matrix products.
    """
    version = require()
    from cuda.bindings import nvrtc

    major, minor = capability
    _, supported = nvrtc.nvrtcGetSupportedArchs()
    fitting = [arch for arch in supported if arch // 10 == major and arch % 10 <= minor]
    if not fitting:
        raise RuntimeError(
            f"NVRTC {version} compiles for {_names(supported)}, none of which runs on this device "
            f"(sm_{major}{minor}): install another nvidia-cuda-nvrtc of the same CUDA major"
        )
    return "sm_90a" if max(fitting) == 90 else f"sm_{max(fitting)}"


def _names(architectures: Sequence[int]) -> str:
    return ", ".join(f"sm_{arch}" for arch in architectures)


def compile_source(source: str, arch: str, defines: Mapping[str, int]) -> Compiled:
    """Compile a source, whatever is stored of it."""
    require()
    from cuda.core import Program, ProgramOptions

    path = locate(source)
    options = ProgramOptions(
        name=path.name,
        arch=arch,
        std=STANDARD,
        lineinfo=True,  # profilers and sanitizers name lines; the code stays the same
        define_macro=[(name, str(value)) for name, value in sorted(defines.items())] or None,
        include_path=[str(path.parent), str(FOLDER)],
    )
    log = io.StringIO()
    try:
        program = Program(texts(source)[path.name], "c++", options)
        cubin = bytes(program.compile("cubin", logs=log).code)
    except Exception as error:  # every release of cuda.core raises a type of its own
        macros = " ".join(f"{name}={value}" for name, value in sorted(defines.items()))
        raise RuntimeError(
            f"{path.name} does not compile for {arch} ({macros or 'no macros'}):\n{error}"
        ) from error
    return Compiled(cubin, log.getvalue().strip("\0 \n"))


def key(source: str, arch: str, defines: Mapping[str, int]) -> str:
    """Digest of all that the machine code depends on.

    That is the text of the source and of every file it includes, the macros, the options, the
    architecture and the version of the compiler.
    """
    parts = [require(), STANDARD, arch, locate(source).name]
    parts += [f"{name}={value}" for name, value in sorted(defines.items())]
    parts += [part for file in sorted(texts(source).items()) for part in file]
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def cubin(source: str, arch: str, defines: Mapping[str, int]) -> bytes:
    """Machine code of a source, from the disk where it was compiled before."""
    return cached(key(source, arch, defines), lambda: compile_source(source, arch, defines).cubin)


def compile_sources_ahead(capability: tuple[int, int]) -> subprocess.Popen[bytes]:
    """Begin to compile every source without macros that is not in the cache."""
    return _started([str(number) for number in capability])


def missing_sources(arch: str) -> list[str]:
    """Sources without macros that are not in the cache for an architecture, largest first."""
    plain = [path for path in FOLDER.glob("*.cu") if list(variants_of(path.name)) == [{}]]
    absent = [
        path for path in plain if read(folder() / f"{key(path.name, arch, {})}.cubin") is None
    ]
    return [path.name for path in sorted(absent, key=lambda path: (-path.stat().st_size, path))]


def compile_missing(capability: tuple[int, int]) -> None:
    """Compile the sources that are missing, in as many processes as there are cores."""
    sources = missing_sources(architecture(capability))
    count = min(available_cores(), len(sources))
    own = [str(number) for number in capability]
    for process in [_started([*own, *sources[number::count]]) for number in range(count)]:
        process.wait()


def _started(words: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pcnn.kernels.compiler", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main(words: Sequence[str]) -> None:
    """Compile the sources named behind major and minor of a capability;
    without any, the missing.
    """
    capability = int(words[0]), int(words[1])
    if len(words) == 2:
        compile_missing(capability)
    for source in words[2:]:
        cubin(source, architecture(capability), {})


if __name__ == "__main__":
    main(sys.argv[1:])
