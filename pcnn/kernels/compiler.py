"""The CUDA sources that travel with the package, read as text, and their machine code by NVRTC.

A source includes nothing but our own files and declares its kernels with ``KERNEL(name, Arguments,
threads)`` of ``common.cuh``; its compile-time choices are macros. The block size, which
a launch has to know, is read from the text, so it is the same for every compiler of these files.

To compile for one architecture takes no GPU.
Sources may be compiled ahead of their use, side by side: NVRTC compiles one source at a time in a
process, so every core has a process of its own. A launch that needs a source in the meantime waits
at the cache's lock for the process that compiles it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import io
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pcnn.cores import available_cores
from pcnn.files.whole_file import locked, user_cache, whole_file
from pcnn.messages import install

#: Folder of the sources: in a checkout a link to the top-level folder, in a wheel a real one.
FOLDER = Path(__file__).resolve().parents[1] / "csrc"

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*(\S+)", re.MULTILINE)
KERNEL = re.compile(r"^[ \t]*KERNEL\(\s*(\w+)\s*,\s*(\w+)\s*,\s*([^()]+?)\s*\)", re.MULTILINE)
#: A constant of the text: ``#define X 256`` or ``constexpr int X = 256;``.
CONSTANT = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+"
    r"|(?:static[ \t]+)?constexpr[ \t]+\w+[ \t]+(\w+)\s*=\s*)"
    r"([\w \t*+]+?)[ \t]*;?[ \t]*$",
    re.MULTILINE,
)

STANDARD = "c++17"
DIGEST = hashlib.sha256
DIGEST_BYTES = DIGEST().digest_size


def locate(source: str) -> Path:
    """Path of a source: a name in the package's folder, or a path of its own."""
    path = FOLDER / source
    if not path.is_file():
        there = ", ".join(sorted(found.name for found in FOLDER.glob("*.cu"))) or "none"
        raise FileNotFoundError(f"no CUDA source {path}; there are {there}")
    return path


@functools.cache
def texts(source: str) -> Mapping[str, str]:
    """Text of a source and of every file it includes, directly or not, by name."""
    found: dict[str, str] = {}
    waiting = [locate(source)]
    while waiting:
        path = waiting.pop()
        found[path.name] = path.read_text(encoding="utf-8")
        for target in INCLUDE.findall(COMMENT.sub("", found[path.name])):
            name = target.strip('"')
            if f'"{name}"' != target:
                raise ValueError(
                    f"{path} includes {target}: kernels include own files only, in quotes "
                    "(the run-time compiler has no headers of CUDA or of C++)"
                )
            if name not in found:
                waiting.append(_included(path, name))
    return found


def _included(path: Path, name: str) -> Path:
    for folder in (path.parent, FOLDER):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{path} includes {name}, which is in neither {path.parent} nor csrc")


@functools.cache
def code(source: str) -> str:
    """Text of a source and its includes, without comments."""
    return "\n".join(COMMENT.sub("", text) for text in texts(source).values())


@functools.cache
def kernels(source: str) -> dict[str, tuple[str, str]]:
    """Struct and threads of a block, of the kernels that a source declares.

    Threads are a number, a constant, or sums and products of them.
    """
    return {name: (struct, threads) for name, struct, threads in KERNEL.findall(code(source))}


def kernel_of(source: str, kernel: str) -> tuple[str, str]:
    """A kernel's declaration; LookupError where there is none."""
    declared = kernels(source)
    if kernel not in declared:
        raise LookupError(f"{source} has no kernel {kernel!r}; it has {', '.join(declared)}")
    return declared[kernel]


def threads_of(source: str, kernel: str, defines: Mapping[str, int]) -> int:
    """Threads of a block."""
    expression = kernel_of(source, kernel)[1]
    threads = number(source, expression, defines)
    if threads is None or not 1 <= threads <= 1024:
        raise ValueError(
            f"{source}: the block size of {kernel}, {expression!r}, is {threads}, not 1 to 1024"
        )
    return threads


def number(source: str, expression: str, defines: Mapping[str, int]) -> int | None:
    """What sums and products of numbers and constants come to; ``None`` where one is unknown.

    A constant is given in `defines`, or by ``#define`` or ``constexpr`` in the source.
    """
    constants = {
        macro or constant: text for macro, constant, text in CONSTANT.findall(code(source))
    }
    constants |= {name: str(value) for name, value in defines.items()}
    return _value(expression, constants)


def _value(expression: str, constants: Mapping[str, str]) -> int | None:
    for sign in "+*":
        parts = expression.split(sign)
        if len(parts) > 1:
            values = [value for part in parts if (value := _value(part, constants)) is not None]
            whole = sum(values) if sign == "+" else math.prod(values)
            return whole if len(values) == len(parts) else None
    word = expression.strip()
    if word.isdecimal():
        return int(word)
    # a constant may be said in terms of others, never of itself
    others = {name: text for name, text in constants.items() if name != word}
    return _value(constants[word], others) if word in constants else None


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


def architecture(capability: tuple[int, int]) -> str:
    """Architecture whose machine code runs on a device of this compute capability."""
    version = require()
    from cuda.bindings import nvrtc

    major, minor = capability
    _, supported = nvrtc.nvrtcGetSupportedArchs()
    fitting = [arch for arch in supported if arch // 10 == major and arch % 10 <= minor]
    if not fitting:
        raise RuntimeError(
            f"NVRTC {version} compiles for {supported}, none of which runs on this device "
            f"(sm_{major}{minor}): install another nvidia-cuda-nvrtc of the same CUDA major"
        )
    return "sm_90a" if max(fitting) == 90 else f"sm_{max(fitting)}"


def compile_source(source: str, arch: str, defines: Mapping[str, int]) -> tuple[bytes, str]:
    """Machine code of a source, an ELF file, and warnings of the compiler."""
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
    return cubin, log.getvalue().strip("\0 \n")


def key(source: str, arch: str, defines: Mapping[str, int]) -> str:
    """Digest of all that the machine code depends on, texts of included files too."""
    what = require(), STANDARD, arch, locate(source).name, sorted(defines.items())
    return hashlib.sha256(repr((what, sorted(texts(source).items()))).encode()).hexdigest()


def cubin(source: str, arch: str, defines: Mapping[str, int]) -> bytes:
    """Machine code of a source, from the disk where it was compiled before."""
    return cached(key(source, arch, defines), lambda: compile_source(source, arch, defines)[0])


def kernel_cache() -> Path:
    """Folder of compiled kernels."""
    return user_cache() / "pcnn" / "cubin"


def cached(key: str, build: Callable[[], bytes]) -> bytes:
    """Bytes stored under a key behind their checksum, built where there are none that are whole.

    Writers of one key wait for each other, so that many processes that start together build once.
    Where nothing can be stored a warning says so.
    """
    with contextlib.ExitStack() as stack:
        try:
            path = kernel_cache() / f"{key}.cubin"
            found = read(path)
            if found is None:
                # entries share 16 lock files, so that these do not pile up
                stack.enter_context(locked(path.parent / f"lock-{path.name[0]}"))
                found = read(path)  # another process may have written it while this one waited
        except (OSError, RuntimeError) as error:
            _warn(error)
            return build()
        if found is None:
            found = build()
            try:
                with whole_file(path) as file:  # readers see all of it or nothing
                    file.write(DIGEST(found).digest() + found)
            except OSError as error:
                _warn(error)
        return found


def read(path: Path) -> bytes | None:
    """Bytes of an entry, ``None`` where it is missing, unreadable or damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    digest, content = stored[:DIGEST_BYTES], stored[DIGEST_BYTES:]
    return content if digest == DIGEST(content).digest() else None


def _warn(error: Exception) -> None:
    warnings.warn(
        f"compiled CUDA kernels cannot be stored ({error}): every process compiles its own. "
        "Make that folder writable, or set XDG_CACHE_HOME to one that is.",
        RuntimeWarning,
        stacklevel=2,
    )


def missing_sources(arch: str) -> list[str]:
    """Sources without macros that are not in the cache for an architecture, largest first."""
    plain = [path for path in FOLDER.glob("*.cu") if "// variants:" not in path.read_text()]
    absent = [
        path for path in plain if read(kernel_cache() / f"{key(path.name, arch, {})}.cubin") is None
    ]
    return [path.name for path in sorted(absent, key=lambda path: (-path.stat().st_size, path))]


def compile_sources_ahead(
    capability: tuple[int, int], sources: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Begin to compile these sources one by one; without any the missing, on all cores."""
    return subprocess.Popen(
        [sys.executable, "-m", "pcnn.kernels.compiler", *map(str, capability), *sources],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main(major: str, minor: str, *sources: str) -> None:
    """What a process of `compile_sources_ahead` does."""
    capability = int(major), int(minor)
    arch = architecture(capability)
    for source in sources:
        cubin(source, arch, {})
    missing = [] if sources else missing_sources(arch)
    cores = min(available_cores(), len(missing))
    shares = (missing[number::cores] for number in range(cores))
    for process in [compile_sources_ahead(capability, share) for share in shares]:
        process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
