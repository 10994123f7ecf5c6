"""Kernel maps of native points: radius search and local voxelisation (PointCNN++, 3.2)."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, PointSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.maps.device_layouts import DEVICE_LAYOUTS, has_kernels
from pcnn.maps.host_search import sort_by_slot
from pcnn.maps.neighbour_kernels import CountedNeighbours, SortedPoints, Sorts, Window
from pcnn.maps.point_cells import Edges, PointCells, Reach
from pcnn.maps.point_memory import (
    PendingMap,
    compared_pairs,
    listed_triplets,
    map_bytes,
    most_bytes,
    most_compared,
    refuse,
)
from pcnn.maps.tiling import counted_parents, listed_parents

#: Reach over the size of a cell, so that it covers the cell: the float32 points of a cloud of 2^17
#: cells may lie 2^-7 of a cell beside where their cells were read off.
COVERING = 1 + 2.0**-6


class Field(NamedTuple):
    """Where a kernel looks for its inputs."""

    points: Tensor  # [N_in, 3] float32 inputs
    centres: Tensor  # [N_out, 3] float32, the kernel's centre at every output
    window: Window  # what it sees around a centre


@dataclass(frozen=True)
class RadiusSearch:
    """All neighbours within reach of every output point, each in the kernel cell it lies in.

    A kernel cell is ``cell * dilation`` cells of the input's level wide. A cubic kernel over cubic
    cells reaches as far as the ball with the volume of its box (`official_radius`), any other one
    as far as its box. Kernels that tile space (size = stride) take no search (`pcnn.maps.tiling`).
    At ``sites=cell_origin`` the relation is that of voxels, between the cells of the points.

    The output points of a kernel of stride 1 may be any points of the same clouds. Features come to
    those of a finer level by a search among the coarse points (PointCNN++ 4.1), which is refused
    where its reach could miss some. The transpose of a map between levels needs no search.
    """

    name: str = "radius_search"  # in configurations and reports

    def build(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """Kernel map from input points ``source`` to output points ``target``."""
        on_device = self.counted(source, target, kernel)
        if on_device is not None:
            return PendingMap.finish_all([on_device], source, source.neighbourhood.memory)[0]
        listed = listed_parents if kernel.is_disjoint else self._listed
        return listed(source, target, kernel)

    def _listed(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """The map by torch; a cloud that is too dense is refused before much of it is listed."""
        points, centres, window = self._field(source, target, kernel)
        most, rows = most_bytes(source, source.neighbourhood.memory), (source.rows, target.rows)
        cells = PointCells(points, source.batch_index, window.reach)
        runs = cells.runs(centres, target.batch_index, window.reach)
        compared, found = int(runs.counts.sum()), 0
        if compared > most_compared(most):
            refuse(source, compared_pairs(compared), most)
        parts = [[torch.zeros(0, dtype=torch.int64, device=source.device)] * 3]
        for out_index, in_index in cells.near(centres, runs, window.reach):
            offsets = points[in_index] - centres[out_index]
            if source.downsampling == "cell_origin":
                slot = cell_slots(offsets, kernel.dilation, kernel.size)
            else:
                slot = slots_of(offsets, window.edges, kernel.size, window.outside)
            kept = slot >= 0
            parts.append([slot[kept], in_index[kept], out_index[kept]])
            found += len(parts[-1][0])
            taken = map_bytes(found, rows, kernel.volume, "cpu")
            if taken > most:
                refuse(source, listed_triplets(found, taken), most)
        slot, in_index, out_index = map(torch.cat, zip(*parts, strict=True))
        pairs = sort_by_slot(slot, in_index, out_index, kernel.volume)
        derive = DEVICE_LAYOUTS if has_kernels(source.device) else None
        return KernelMap.from_pairs(*pairs, **_claims(source, target, kernel), derive=derive)

    def counted(
        self, source: PointSet, target: PointSet, kernel: Kernel, sorts: Sorts | None = None
    ) -> PendingMap | None:
        """Count the triplets of the map on a device; nothing waits."""
        if kernel.is_disjoint:
            return counted_parents(source, target, kernel)
        points, centres, window = self._field(source, target, kernel)
        served = has_kernels(source.device) and source.rows > 0 and target.rows > 0
        # kernels round offsets to the cells of an odd kernel
        rounds = all(size % 2 for size in kernel.size)
        if source.downsampling == "cell_origin":
            rounds &= max(kernel.dilation) == 1
        if not served or not rounds:
            return None
        sorts, key = {} if sorts is None else sorts, (id(source), window.reach)
        if key not in sorts:
            clouds = source.batch_index, source.batch_size
            sorts[key] = SortedPoints.of(points, *clouds, window.reach)
        most = most_compared(most_bytes(source, source.neighbourhood.memory))
        counted = CountedNeighbours.of(sorts[key], centres, target.batch_index, window, most)
        claims = _claims(source, target, kernel)

        def fill(offsets: Tensor) -> KernelMap:
            found = counted.fill(int(offsets[-1]))
            pairs = found.in_index, found.out_index, offsets
            built = KernelMap.from_pairs(*pairs, **claims, derive=DEVICE_LAYOUTS)
            built.edges.layouts["rows_csr", False] = found.rows_csr
            built.edges.layouts["counts", False] = (counted.ends.diff(),)
            return built

        sizes = (source.rows, target.rows), bool(claims["symmetric"])
        return PendingMap(counted.ends, fill, *sizes, counted.crowd)

    def _field(self, source: PointSet, target: PointSet, kernel: Kernel) -> Field:
        """Where a kernel looks; refuses those that have no centre, or leave points out."""
        if source.downsampling == "cell_origin":
            return _cell_field(source, target, kernel)
        if not all(size % 2 for size in kernel.size):
            raise ValueError(
                f"native points serve odd kernel sizes, and even ones with stride = size and no "
                f"padding, got {kernel}; or take sites=cell_origin"
            )
        if any(map(operator.lt, target.tensor_stride, source.tensor_stride)):
            self._check_covers(source, kernel)
        centres = target.points if target is source else target.points_about(source)
        shift = _moved(source, kernel)
        if any(shift):
            centres = centres + torch.tensor(shift, dtype=centres.dtype, device=centres.device)
        reach, edges = self.reach(source, kernel), _edges(source, kernel)
        return Field(
            source.points, centres, Window(reach, edges, kernel.size, source.neighbourhood.outside)
        )

    def _check_covers(self, source: PointSet, kernel: Kernel) -> None:
        """Refuse to search coarse points for finer ones that may lie out of reach of any."""
        reach, cell = self.reach(source, kernel), [COVERING * edge for edge in source.voxel_size]
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

    def reach(self, source: PointSet, kernel: Kernel) -> Reach:
        """How far the kernel sees around its centre: ball radius, or half widths of a box [m]."""
        edges, rule = _edges(source, kernel), source.neighbourhood
        cubic = len(set(kernel.size)) == 1 and len(set(edges)) == 1
        if not cubic:
            return box_reach(edges, kernel.size, rule.volume)
        return official_radius(edges[0], kernel.size[0], rule.volume)


def _edges(source: PointSet, kernel: Kernel) -> Edges:
    """Edges of a kernel cell [m]."""
    cell = source.neighbourhood.cell
    axes = zip(source.voxel_size, kernel.dilation, strict=True)
    x, y, z = (edge * cell * dilation for edge, dilation in axes)
    return x, y, z


def _claims(source: PointSet, target: PointSet, kernel: Kernel) -> dict[str, Any]:
    """Arguments of `KernelMap.from_pairs` besides the pairs."""
    degraded = source.downsampling == "cell_origin"
    return {
        "n_in": source.rows,
        "n_out": target.rows,
        "one_per_slot": degraded and source.one_per_cell,
        "one_per_slot_transposed": degraded and target.one_per_cell,
        "symmetric": kernel.is_symmetric and source is target,
    }


def _moved(source: PointSet, kernel: Kernel) -> Edges:
    """From the output to the centre of the kernel [m]: 0 at the usual padding."""
    usual = Kernel.of(kernel.size, kernel.stride, kernel.dilation).padding
    axes = zip(source.voxel_size, usual, kernel.padding, strict=True)
    x, y, z = (edge * (padding - own) for edge, padding, own in axes)
    return x, y, z


def _cell_field(source: PointSet, target: PointSet, kernel: Kernel) -> Field:
    """The same in units of the input's cells, whose numbers float32 holds exactly."""
    expected = tuple(map(operator.mul, source.tensor_stride, kernel.stride))
    if target.tensor_stride != expected:
        raise ValueError(
            f"at sites=cell_origin a kernel of stride {kernel.stride} leads from tensor stride "
            f"{source.tensor_stride} to {expected}, not to {target.tensor_stride}; use "
            "ConvTranspose3d"
        )
    sizes = zip(source.voxel_size, kernel.stride, target.voxel_size, strict=True)
    if not all(math.isclose(edge * step, other) for edge, step, other in sizes):
        raise ValueError(
            f"at sites=cell_origin cells of {source.voxel_size} m and a kernel of stride "
            f"{kernel.stride} do not fit output cells of {target.voxel_size} m; make both sets of "
            "points with one voxel_size"
        )
    halves = [d * (size - 1) / 2 for d, size in zip(kernel.dilation, kernel.size, strict=True)]
    shift = [half - padding for half, padding in zip(halves, kernel.padding, strict=True)]
    moved = torch.tensor((kernel.stride, shift), device=source.device)
    points = source.cells[:, 1:].to(torch.float32)
    centres = target.cells[:, 1:].to(torch.float32) * moved[0] + moved[1]
    if target.corners is not source.corners:  # sets of two makers may count from two places
        size = torch.tensor(source.voxel_size, dtype=torch.float64, device=source.device)
        apart = torch.round((target.corners - source.corners) / size)  # [B, 3] whole numbers
        centres = centres + apart.to(torch.float32)[target.batch_index]
    x, y, z = (half + 0.25 for half in halves)
    return Field(points, centres, Window((x, y, z), (1.0, 1.0, 1.0), kernel.size, "drop"))


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
    """Kernel cell of every offset: ``offset / grid``, rounded half away from zero."""
    quotient = offsets / torch.tensor(grid, dtype=offsets.dtype, device=offsets.device)
    whole = quotient.trunc()
    # the fraction is exact, and so is its double: quotient + 0.5 would round 0.49999997 up
    return whole + (2 * (quotient - whole)).trunc()


def _slot(place: Tensor, size: Triple) -> Tensor:
    x, y, z = place.unbind(1)
    return (x * size[1] + y) * size[2] + z
