"""Kernel maps of native points: radius search and local voxelisation (PointCNN++, 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, KeyLayout
from pcnn.maps.local_voxels import (
    Edges,
    box_reach,
    cells_of,
    check_outside,
    official_radius,
    outside_share,
    slots_of,
)
from pcnn.maps.native import NATIVE, has_kernels
from pcnn.maps.neighbour_kernels import neighbours
from pcnn.maps.radius_pairs import Reach, radius_pairs

METRICS = ("auto", "ball", "box")


class Points(Protocol):
    """What the search reads of a geometry of points."""

    @property
    def rows(self) -> int:
        """Number of points N."""

    @property
    def batch_size(self) -> int:
        """Number of clouds, empty ones included."""

    @property
    def points(self) -> Tensor:
        """``[N, 3]`` float32 [m], relative to an origin for each cloud."""

    @property
    def batch_index(self) -> Tensor:
        """``[N]`` int64 cloud of every point."""

    @property
    def grid_size(self) -> Edges:
        """Edge of a cell of this level along x, y and z [m]."""

    @property
    def sites(self) -> str:
        """``cell_origin`` where every point lies in its cell's corner, as voxels do."""

    @property
    def one_per_cell(self) -> bool:
        """Whether no cell holds two points."""

    @property
    def keys(self) -> Tensor:
        """``[N]`` int64 packed cells of this level, sorted."""

    @property
    def layout(self) -> KeyLayout:
        """Bit layout of the keys."""

    @property
    def inverse(self) -> Tensor | None:
        """On a coarser level: ``[M]`` int64 row above every row of the finer one."""

    def points_about(self, other: Any) -> Tensor:
        """``[N, 3]`` float32 points relative to the origins of another geometry."""

    def is_below(self, coarse: Any, kernel: Kernel) -> bool:
        """Whether ``coarse`` was made from this geometry by the kernel's stride."""


@dataclass(frozen=True)
class RadiusSearch:
    """All neighbours within reach of every output point, each in the kernel cell it lies in.

    A kernel cell is ``cell * dilation`` cells of the input's level wide. A cubic kernel over cubic
    cells reaches as far as the ball with the volume of its box (`official_radius`), any other one
    as far as its box. A kernel that tiles space (size = stride) takes no search: every input goes
    to the point of its coarse cell, in the slot of its place there. At ``sites=cell_origin`` the
    triplets are those of the voxel convolution.

    Args:
        outside: what becomes of neighbours in the ball and outside the box, ``clamp`` or ``drop``.
        volume: volume of the field over that of the kernel's box, s.
        cell: edge of a kernel cell, in cells of the input's level: 0.6 puts a kernel of 5 into the
            field of one of 3.
        metric: ``ball``, ``box``, or ``auto`` as said above.
        name: in configurations and reports.
    """

    outside: str = "clamp"
    volume: float = 1.0
    cell: float = 1.0
    metric: str = "auto"
    name: str = "radius_search"

    def __post_init__(self) -> None:
        check_outside(self.outside)
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {self.metric!r}")
        if not self.volume > 0 or not self.cell > 0:
            raise ValueError(f"volume and cell must be positive, got {self.volume} and {self.cell}")

    def build(self, source: Points, target: Points, kernel: Kernel) -> KernelMap:
        """Kernel map from input points ``source`` to output points ``target``.

        Triplets are sorted by slot, then output row, then input row.

        Raises:
            ValueError: an even kernel that does not tile space, other than at
                ``sites=cell_origin``; or two points in a coarse cell of a kernel that does.
        """
        device, points = source.points.device, source.sites != "cell_origin"
        if has_kernels(device) and points and not kernel.is_disjoint and source.rows * target.rows:
            return self._on_device(source, target, kernel)
        derive = NATIVE if has_kernels(device) else None
        if kernel.is_disjoint:
            slot, out_index = _parents(source, target, kernel)
            in_index = torch.arange(source.rows, device=slot.device)
            unique = source.one_per_cell, True
        else:
            slot, in_index, out_index = self._triplets(source, target, kernel)
            lattice = source.sites == "cell_origin" and source.one_per_cell
            unique = lattice, lattice and target.one_per_cell
        order, offsets = _by_slot(slot, kernel.volume)
        return KernelMap.from_pairs(
            in_index[order].to(torch.int32),
            out_index[order].to(torch.int32),
            offsets,
            source.rows,
            target.rows,
            *unique,
            symmetric=kernel.is_symmetric and source is target,
            derive=derive,
        )

    def _on_device(self, source: Points, target: Points, kernel: Kernel) -> KernelMap:
        """The same map by kernels; it has the layouts ``pairs`` and ``rows_csr`` at once."""
        _check_odd(kernel)
        found = neighbours(
            source.points,
            source.batch_index,
            _centres(source, target, kernel),
            target.batch_index,
            source.batch_size,
            self.reach(source, kernel),
            self._edges(source, kernel),
            kernel.size,
            self.outside,
        )
        built = KernelMap.from_pairs(
            found.in_index,
            found.out_index,
            found.offsets,
            source.rows,
            target.rows,
            one_per_slot=False,
            one_per_slot_transposed=False,
            symmetric=kernel.is_symmetric and source is target,
            derive=NATIVE,
        )
        built.edges.layouts["rows_csr", False] = found.rows_csr
        return built

    def outside_share(self, source: Points, target: Points, kernel: Kernel) -> float:
        """Share of neighbours within reach that lie outside the kernel's box."""
        if kernel.is_disjoint or source.sites == "cell_origin":
            return 0.0
        offsets, _, _ = _neighbours(source, target, kernel, self.reach(source, kernel))
        return outside_share(offsets, self._edges(source, kernel), kernel.size)

    def reach(self, source: Points, kernel: Kernel) -> Reach:
        """How far the kernel sees around its centre: ball radius, or half widths of a box [m]."""
        edges = self._edges(source, kernel)
        cubic = len(set(kernel.size)) == 1 and len(set(edges)) == 1
        if self.metric == "ball" and not cubic:
            raise ValueError(
                f"metric=ball serves cubic kernels over cubic cells; a kernel of size {kernel.size}"
                f" has cells of {edges} m: use metric=box or auto"
            )
        if self.metric == "box" or not cubic:
            return box_reach(edges, kernel.size, self.volume)
        return official_radius(edges[0], kernel.size[0], self.volume)

    def _edges(self, source: Points, kernel: Kernel) -> Edges:
        """Edges of a kernel cell [m]."""
        edges = zip(source.grid_size, kernel.dilation, strict=True)
        x, y, z = (edge * self.cell * dilation for edge, dilation in edges)
        return x, y, z

    def _triplets(
        self, source: Points, target: Points, kernel: Kernel
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Slot (-1: none), input row and output row of every pair within reach."""
        if source.sites == "cell_origin":
            return _lattice_triplets(source, target, kernel)
        _check_odd(kernel)
        reach = self.reach(source, kernel)
        offsets, in_index, out_index = _neighbours(source, target, kernel, reach)
        slot = slots_of(offsets, self._edges(source, kernel), kernel.size, self.outside)
        return slot, in_index, out_index


def _check_odd(kernel: Kernel) -> None:
    if not all(size % 2 for size in kernel.size):
        raise ValueError(
            f"native points serve odd kernel sizes, and even ones with stride = size and no "
            f"padding; got {kernel}. Use such a kernel, sites=cell_origin, or voxels"
        )


def _centres(source: Points, target: Points, kernel: Kernel) -> Tensor:
    """``[N_out, 3]`` float32 centre of every output's field, about the origins of the inputs."""
    centres = target.points if target is source else target.points_about(source)
    # 0 unless the padding is another than the default: a kernel's field lies around its output
    shift = [
        edge * (dilation * (size - 1) / 2 - padding)
        for edge, size, dilation, padding in zip(
            source.grid_size, kernel.size, kernel.dilation, kernel.padding, strict=True
        )
    ]
    if any(shift):
        centres = centres + torch.tensor(shift, dtype=centres.dtype, device=centres.device)
    return centres


def _neighbours(
    source: Points, target: Points, kernel: Kernel, reach: Reach
) -> tuple[Tensor, Tensor, Tensor]:
    """Offsets ``[T, 3]`` from the field's centre, input rows and output rows within reach."""
    centres = _centres(source, target, kernel)
    out_index, in_index = radius_pairs(
        source.points, source.batch_index, centres, target.batch_index, reach
    )
    return source.points[in_index] - centres[out_index], in_index, out_index


def _lattice_triplets(
    source: Points, target: Points, kernel: Kernel
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for points on cell corners: ``in = stride * out + dilation * slot - padding``."""
    spans = zip(kernel.dilation, kernel.size, strict=True)
    x, y, z = (
        edge * (dilation * (size - 1) + 1) / 2
        for edge, (dilation, size) in zip(source.grid_size, spans, strict=True)
    )
    _, in_index, out_index = _neighbours(source, target, kernel, (x, y, z))
    offsets = source.points[in_index] - target.points_about(source)[out_index]
    relation = (kernel.padding, kernel.dilation, kernel.size)
    padding, dilation, size = torch.tensor(relation, device=offsets.device)
    cells = cells_of(offsets, source.grid_size).to(torch.int64) + padding  # dilation * slot
    place = torch.div(cells, dilation, rounding_mode="floor")  # [T, 3]
    known = (place * dilation == cells) & (place >= 0) & (place < size)
    return torch.where(known.all(1), _slot(place, kernel), -1), in_index, out_index


def _parents(source: Points, target: Points, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Slot (-1: no parent) and output row of every input of a kernel that tiles space."""
    cells = source.layout.unpack(source.keys).to(torch.int64)  # [N_in, 4]
    stride = torch.tensor(kernel.stride, device=cells.device)
    coarse = torch.div(cells[:, 1:], stride, rounding_mode="floor")
    slot = _slot(cells[:, 1:] - coarse * stride, kernel)
    if source.is_below(target, kernel) and target.inverse is not None:
        return slot, target.inverse
    if not target.one_per_cell:
        raise ValueError(
            f"{kernel} gives every input one output, but a coarse cell holds several output "
            "points; use the points of geometry.strided(kernel)"
        )
    if not target.rows:
        return torch.full_like(slot, -1), torch.zeros_like(slot)
    keys = source.layout.pack(torch.cat([cells[:, :1], coarse], dim=1))
    row = torch.searchsorted(target.keys, keys).clamp_(max=target.rows - 1)
    return torch.where(target.keys[row] == keys, slot, -1), row


def _slot(place: Tensor, kernel: Kernel) -> Tensor:
    """Number of the slot at ``place [T, 3]``, x slowest and z fastest."""
    x, y, z = place.unbind(1)
    slot: Tensor = (x * kernel.size[1] + y) * kernel.size[2] + z
    return slot


def _by_slot(slot: Tensor, volume: int) -> tuple[Tensor, Tensor]:
    """Order of the triplets by slot, those without one left out, and where every slot begins."""
    # stable: output rows, then input rows, stay ascending within a slot
    order = torch.argsort(torch.where(slot < 0, volume, slot), stable=True)
    counts = torch.bincount(slot + 1, minlength=volume + 1)[1:].cpu()
    offsets = torch.zeros(volume + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    return order[: int(offsets[-1])], offsets
