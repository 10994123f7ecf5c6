"""CUDA sources compiled ahead of their use, side by side in processes of their own.

NVRTC compiles one source at a time in a process. A launch that needs a source in the meantime waits
at the cache's lock for the process that compiles it.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pcnn.cores import available_cores
from pcnn.kernels.compiler import cubin, key
from pcnn.kernels.cubin_cache import folder, read
from pcnn.kernels.sources import FOLDER, variants_of


def missing_sources(arch: str) -> list[str]:
    """Sources without macros that are not in the cache for an architecture, largest first."""
    plain = [path for path in FOLDER.glob("*.cu") if list(variants_of(path.name)) == [{}]]
    absent = [
        path for path in plain if read(folder() / f"{key(path.name, arch, {})}.cubin") is None
    ]
    return [path.name for path in sorted(absent, key=lambda path: (-path.stat().st_size, path))]


def compile_sources_ahead(arch: str) -> list[subprocess.Popen[bytes]]:
    """Begin to compile every source without macros that is not in the cache.

    Args:
        arch: as ``sm_90a``.

    Returns:
        Processes that end by themselves. What they cannot compile or store is compiled at its use,
        which says why.
    """
    sources = missing_sources(arch)
    count = min(available_cores(), len(sources))
    shares = [sources[number::count] for number in range(count)]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "pcnn.kernels.sources_ahead", arch, *share],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for share in shares
    ]


if __name__ == "__main__":
    for source in sys.argv[2:]:
        cubin(source, sys.argv[1], {})
