"""Small kernel maps and padded buffers, for tests of the kernels that move rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import torch

from pcnn.dataflows.grouping import Adaptive, Grouping
from pcnn.dataflows.padded_buffer import PaddedBuffer, padded_buffer
from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"

#: Kernel, whether the map is read transposed.
MAPS = {
    "submanifold": (Kernel.of(3), False),
    "strided": (Kernel.of(2, 2), False),
    "transposed": (Kernel.of(2, 2), True),
}


def with_turns(*axes: Iterable[Any], turning: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination of the axes, each with one value of another, which take turns."""
    n = len(turning)
    return [(*chosen, turning[(i + i // n) % n]) for i, chosen in enumerate(product(*axes))]


def make(kernel: Kernel, transposed: bool = False, n: int = 60) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to(DEVICE)
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    return kernel_map.transpose() if transposed else kernel_map


def placed(kernel_map: KernelMap, grouping: Grouping | None = None) -> PaddedBuffer:
    (identity,) = kernel_map.layout("identity_slot")[0].tolist()
    offsets = tuple(kernel_map.offsets.tolist())
    return padded_buffer(offsets, grouping or Adaptive(0.5), identity, False)


def buffer_row(kernel_map: KernelMap, place: PaddedBuffer) -> torch.Tensor:
    """``[T]`` int64, buffer row of every triplet."""
    shifts = torch.tensor(place.shifts, device=DEVICE)
    return torch.arange(kernel_map.triplets, device=DEVICE) + shifts[kernel_map.slot_index]
