"""From a CUDA source to machine code for one architecture, by NVRTC; needs no GPU.

Sources may be compiled ahead of their use, side by side: NVRTC compiles one source at a time in a
process, so every core has a process of its own. A launch that needs a source in the meantime waits
at the cache's lock for the process that compiles it.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pcnn.cores import available_cores
from pcnn.files.whole_file import locked, user_cache, whole_file
from pcnn.kernels.sources import FOLDER, locate, texts
from pcnn.messages import install

STANDARD = "c++17"
DIGEST = hashlib.sha256
DIGEST_BYTES = DIGEST().digest_size


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
