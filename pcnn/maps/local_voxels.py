"""Local voxelisation: the kernel slot of a neighbour, from its offset to the true centre.

PointCNN++, section 3.2: no global grid is laid over the points; a kernel's cells lie around each
output point, and a neighbour falls into the cell that its offset points at.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple

#: Cell edges along x, y and z [m].
Edges = tuple[float, float, float]


def official_radius(grid: float, size: int, volume: float = 1.0) -> float:
    """Radius of the ball with the volume of the kernel's box, times ``volume``.

    R = grid * (3 t^3 s / (4 pi))^(1/3)          t kernel size, s volume factor
    """
    return float(grid * (3 * size**3 * volume / (4 * math.pi)) ** (1 / 3))


def box_reach(grid: Edges, size: Triple, volume: float = 1.0) -> Edges:
    """Half widths of the kernel's box ``grid * t / 2`` per axis, its volume times ``volume``."""
    scale = volume ** (1 / 3) / 2
    x, y, z = (edge * cells * scale for edge, cells in zip(grid, size, strict=True))
    return x, y, z


def slots_of(offsets: Tensor, grid: Edges, size: Triple, outside: str = "clamp") -> Tensor:
    """Kernel slot of every neighbour of an odd kernel, the centre in its middle cell."""
    cells = _cells_of(offsets, grid)
    limit = torch.tensor([width // 2 for width in size], dtype=cells.dtype, device=cells.device)
    slot = _slot((cells.clamp(-limit, limit) + limit).to(torch.int64), size)
    return slot if outside == "clamp" else torch.where((cells.abs() <= limit).all(1), slot, -1)


def cell_slots(offsets: Tensor, dilation: Triple, size: Triple) -> Tensor:
    """Slots of voxels, -1 where none lies: ``in - stride * out = dilation * slot - padding``."""
    spans = zip(dilation, size, strict=True)
    # from the first slot on, in cells: whole numbers, halves cancel for even sizes
    start = offsets.new_tensor([step * (width - 1) / 2 for step, width in spans])
    place, step = (offsets + start).to(torch.int64), torch.tensor(dilation, device=offsets.device)
    slot = _slot(torch.div(place, step, rounding_mode="floor"), size)
    return torch.where((place % step == 0).all(1), slot, -1)


def _cells_of(offsets: Tensor, grid: Edges) -> Tensor:
    """Kernel cell of every offset: ``offset / grid``, rounded half away from zero.

    So the opposite offset has the opposite cell. The quotient is one float32 division.
    """
    quotient = offsets / torch.tensor(grid, dtype=offsets.dtype, device=offsets.device)
    whole = quotient.trunc()
    # the fraction is exact, and so is its double: quotient + 0.5 would round 0.49999997 up
    return whole + (2 * (quotient - whole)).trunc()


def _slot(place: Tensor, size: Triple) -> Tensor:
    x, y, z = place.unbind(1)
    return (x * size[1] + y) * size[2] + z
