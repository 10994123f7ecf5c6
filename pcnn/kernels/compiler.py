"""From a CUDA source to machine code for one architecture, by NVRTC; needs no GPU."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pcnn.kernels.bindings import require
from pcnn.kernels.cubin_cache import cached
from pcnn.kernels.sources import FOLDER, locate, texts

STANDARD = "c++17"


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
