"""Kernel maps of native points: radius search and local voxelisation (PointCNN++, 3.2)."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import BATCH_SHIFT
from pcnn.maps.base import DEVICE_LAYOUTS, has_kernels
from pcnn.maps.disjoint import counted_parents, listed_parents
from pcnn.maps.host_search import sort_by_slot
from pcnn.maps.neighbour_kernels import MAX_TASKS, CountedNeighbours, Search, Window
from pcnn.maps.point_cells import Edges, PointCells, Reach
from pcnn.maps.point_memory import Budget, PendingMap, map_bytes

#: Reach over the size of a cell, so that it covers the cell: the float32 points of a cloud of 2^17
#: cells may lie 2^-7 of a cell beside where their cells were read off.
COVERING = 1 + 2.0**-6


@dataclass(frozen=True)
class RadiusSearch:
    """All neighbours within reach of every output point, each in the kernel cell it lies in.

    A kernel cell is ``dilation`` cells of the input's level wide. A cubic kernel over cubic cells
    reaches as far as the ball with the volume of its box (`official_radius`), any other one as far
    as its box; neighbours outside of the box count in its nearest cell. Kernels that tile space
    (size = stride) take no search (`pcnn.maps.disjoint`).

    The output points of a kernel of stride 1 may be any points of the same clouds. Features come to
    those of a finer level by a search among the coarse points (PointCNN++ 4.1), which is refused
    where its reach could miss some. The transpose of a map between levels needs no search.
    """

    name: str = "radius_search"  # in configurations and reports

    def build(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """Kernel map from input points ``source`` to output points ``target``."""
        (on_device,) = counted_maps([(source, target, kernel)])
        if on_device is not None:
            return PendingMap.finish_all([on_device], source)[0]
        return (listed_parents if kernel.is_disjoint else _listed)(source, target, kernel)


def counted_maps(maps: Sequence[tuple[PointSet, PointSet, Kernel]]) -> list[PendingMap | None]:
    """Count the triplets of maps on a device, ``None`` on the host; nothing waits."""
    found: list[PendingMap | None] = []
    searches: dict[int, Search] = {}
    for number, (source, target, kernel) in enumerate(maps):
        found.append(counted_parents(source, target, kernel) if kernel.is_disjoint else None)
        if kernel.is_disjoint:
            continue
        centres, window = _window(source, target, kernel)
        if has_kernels(source.device) and source.rows and target.rows:
            sides = source.points, source.keys, centres, target.keys, source.batch_size
            most = Budget.of(source).compared
            searches[number] = Search(*sides, window, BATCH_SHIFT, most)
    for first in range(0, len(searches), MAX_TASKS):
        numbers = list(searches)[first : first + MAX_TASKS]
        counted = CountedNeighbours([searches[number] for number in numbers])
        for place, number in enumerate(numbers):
            found[number] = _pending(counted, place, *maps[number])
    return found


def _pending(
    counted: CountedNeighbours, place: int, source: PointSet, target: PointSet, kernel: Kernel
) -> PendingMap:
    claims, numbers = _claims(source, target, kernel), counted.numbers[place]

    def fill(offsets: Tensor) -> KernelMap:
        in_index, out_index, rows_csr, counts = counted.lists[place]
        built = KernelMap.from_pairs(in_index, out_index, offsets, **claims, derive=DEVICE_LAYOUTS)
        built.edges.layouts["rows_csr", False] = rows_csr
        built.edges.layouts["counts", False] = (counts,)
        return built

    sizes = (source.rows, target.rows), bool(claims["symmetric"])
    return PendingMap(numbers[:-2], fill, *sizes, numbers[-2:], counted.fill)


def _listed(source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
    """The map by torch; a cloud that is too dense is refused before much of it is listed."""
    centres, window = _window(source, target, kernel)
    budget, rows = Budget.of(source), (source.rows, target.rows)
    cells = PointCells(source.points, source.batch_index, window.reach)
    runs = cells.runs(centres, target.batch_index, window.reach)
    budget.check_compared(int(runs.counts.sum()))
    parts = [[torch.zeros(0, dtype=torch.int64, device=source.device)] * 3]
    found = 0
    for out_index, in_index in cells.near(centres, runs, window.reach):
        offsets = source.points[in_index] - centres[out_index]
        parts.append([slots_of(offsets, window.edges, kernel.size), in_index, out_index])
        found += len(in_index)
        budget.check_listed(found, map_bytes(found, rows, kernel.volume, "cpu"))
    slot, in_index, out_index = map(torch.cat, zip(*parts, strict=True))
    pairs = sort_by_slot(slot, in_index, out_index, kernel.volume)
    derive = DEVICE_LAYOUTS if has_kernels(source.device) else None
    return KernelMap.from_pairs(*pairs, **_claims(source, target, kernel), derive=derive)


def _claims(source: PointSet, target: PointSet, kernel: Kernel) -> dict[str, Any]:
    """Arguments of `KernelMap.from_pairs` besides the pairs."""
    symmetric = kernel.is_symmetric and source is target
    unique = {"one_per_slot": False, "one_per_slot_transposed": False}
    return {"n_in": source.rows, "n_out": target.rows, "symmetric": symmetric, **unique}


def _window(source: PointSet, target: PointSet, kernel: Kernel) -> tuple[Tensor, Window]:
    """Centres ``[N_out, 3]`` and what a kernel sees; refuses one that leaves points out."""
    if not all(size % 2 for size in kernel.size):
        raise ValueError(
            f"native points serve odd kernel sizes, and even ones with stride = size and no "
            f"padding, got {kernel}"
        )
    edges = _scaled(source.voxel_size, kernel.dilation)
    cubic = len(set(kernel.size)) == 1 and len(set(edges)) == 1
    reach: Reach = (
        official_radius(edges[0], kernel.size[0])
        if cubic
        else _scaled(edges, (size / 2 for size in kernel.size))
    )
    if any(map(operator.lt, target.tensor_stride, source.tensor_stride)):
        _check_covers(source, kernel, reach)
    centres = target.points if target is source else target.points_about(source)
    usual = Kernel.of(kernel.size, kernel.stride, kernel.dilation).padding
    shift = _scaled(source.voxel_size, map(operator.sub, usual, kernel.padding))
    if any(shift):
        centres = centres + torch.tensor(shift, dtype=centres.dtype, device=centres.device)
    return centres, Window(reach, edges, kernel.size)


def _scaled(edges: Edges, times: Iterable[float]) -> Edges:
    x, y, z = map(operator.mul, edges, times)
    return x, y, z


def _check_covers(source: PointSet, kernel: Kernel, reach: Reach) -> None:
    """Refuse to search coarse points for finer ones that may lie out of reach of any."""
    cell = [COVERING * edge for edge in source.voxel_size]
    if isinstance(reach, tuple):
        covers, needed = all(map(operator.ge, reach, cell)), f"{cell} m per axis"
    else:
        covers, needed = reach >= math.hypot(*cell), f"{math.hypot(*cell):.4g} m"
    if not covers:
        raise ValueError(
            f"a kernel of size {kernel.size} over cells of {source.voxel_size} m reaches "
            f"{reach} m, and finer points may lie {needed} from the nearest coarse one: some "
            "would have no neighbour; use a larger kernel, or ConvTranspose3d"
        )


def official_radius(edge: float, size: int) -> float:
    """Radius of the ball with the volume of the kernel's box, ``edge (3 t^3 / (4 pi))^(1/3)``."""
    return float(edge * (3 * size**3 / (4 * math.pi)) ** (1 / 3))


def slots_of(offsets: Tensor, edges: Edges, size: Triple) -> Tensor:
    """Kernel slot of every neighbour of an odd kernel, the centre in its middle cell.

    ``offset / edge`` is rounded half away from zero, and clamped into the kernel's box.
    """
    quotient = offsets / torch.tensor(edges, dtype=offsets.dtype, device=offsets.device)
    whole = quotient.trunc()
    # the fraction is exact, and so is its double: quotient + 0.5 would round 0.49999997 up
    cells = whole + (2 * (quotient - whole)).trunc()
    limit = torch.tensor([width // 2 for width in size], dtype=cells.dtype, device=cells.device)
    x, y, z = (cells.clamp(-limit, limit) + limit).to(torch.int64).unbind(1)
    return (x * size[1] + y) * size[2] + z
