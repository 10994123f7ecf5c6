"""CUDA sources compiled ahead of their use, side by side in processes of their own.

NVRTC compiles one source at a time in a process. A launch that needs a source in the meantime waits
at the cache's lock for the process that compiles it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from pcnn.cores import available_cores
from pcnn.kernels.compiler import architecture, cubin, key
from pcnn.kernels.cubin_cache import folder, read
from pcnn.kernels.sources import FOLDER, variants_of


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
        [sys.executable, "-m", "pcnn.kernels.sources_ahead", *words],
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
