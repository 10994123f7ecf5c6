"""One map build for a profiler to look at: ``python -m pcnn.bench.mapping.one_build ...``.

Arguments: workload file, builder, kernel size, stride, device. Only the second build lies between
the profiler's start and stop; the first one compiles kernels and fills the allocator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from pcnn.bench.mapping.builders import named
from pcnn.bench.mapping.products import bare, build
from pcnn.bench.scenes import load_scene
from pcnn.geometry import Kernel


def one_build(words: Sequence[str]) -> None:
    """Build a map twice, and have the second build profiled on a CUDA device."""
    workload, name, size, stride, where = words
    device = torch.device(where)
    (builder,) = named(device, [name])
    grid = load_scene(workload).grid.to(device)
    kernel = Kernel.of(int(size), int(stride))
    build(bare(grid), builder, kernel, "table")
    if device.type != "cuda":
        build(bare(grid), builder, kernel, "table")
        return
    again = bare(grid)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    build(again, builder, kernel, "table")
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    one_build(sys.argv[1:])
