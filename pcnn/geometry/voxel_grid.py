"""Sorted, unique, packed voxels of a batch of clouds, and the levels derived from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from pcnn.geometry.base import Finer, Geometry
from pcnn.geometry.checks import check_batch, check_integers, check_order
from pcnn.geometry.kernel_map import one_line, per_axis
from pcnn.geometry.kernel_slots import Kernel, Triple
from pcnn.geometry.packing import HALF, check_bound, pack

Box = tuple[Triple, Triple]

DOWNSAMPLING = ("floor", "reached")


@dataclass(frozen=True, eq=False)
class VoxelGrid(Geometry):
    """Where the features of a voxel tensor live.

    Rows are sorted by (batch, x, y, z). Coordinates of every level are in level-0 voxels, so they
    are multiples of ``tensor_stride``. Levels and kernel maps are kept with a grid (`Geometry`),
    and no copy of it takes them along: neither `dataclasses.replace` nor `copy` nor `pickle`.

    Args:
        keys: ``[N]`` int64 packed coordinates, sorted, unique.
        batch_size: number of clouds, empty ones included.
        bound: largest absolute coordinate, known on the host.
        tensor_stride: spacing of the sites per axis, in level-0 voxels.
        downsampling: output sites of strided convolutions: ``floor`` (the coarse voxel of every
            site) or ``reached`` (every site that some triplet reaches).
        inverse: ``[P]`` int64, row of every point the grid was made from; for a level made by
            floor, the row above every site of the finer grid; ``None`` otherwise.
        box: lowest and highest coordinate along x, y and z, if the host knows them.
        finer: of a level, the inverses from the points up to the finer grid; ``None`` if they are
            not known.
        count: ``[1]`` int32 on the device of the keys, rows that hold a site; ``None``: all of
            them. Spare rows follow; their key is the sentinel, and no map leads from or to them.
        spatial_shape: cells along x, y and z of the volume, ``0 .. shape - 1`` in cells of this
            level, that the sites lie in; sites that are `reached`, dilated or generated then lie in
            the volume that torch's dense layer would give. ``None``: no volume.
        check: whether to look at the contents of keys on the host, where that waits for no device.

    Raises:
        ValueError: keys of another shape or dtype, or that are seen to be unsorted, repeated or of
            no cloud; sites that do not exist; coordinates beyond the packing.
    """

    keys: Tensor
    batch_size: int
    bound: int
    tensor_stride: Triple = (1, 1, 1)
    downsampling: str = "floor"
    inverse: Tensor | None = None
    box: Box | None = None
    finer: Finer = ()
    count: Tensor | None = None
    spatial_shape: Triple | None = None
    check: InitVar[bool] = True

    name: ClassVar[str] = "voxel"
    kind: ClassVar[str] = "voxel grid"
    short: ClassVar[str] = "grid"

    def __post_init__(self, check: bool) -> None:
        self._start()
        if self.downsampling not in DOWNSAMPLING:
            raise ValueError(
                f"downsampling must be one of {', '.join(DOWNSAMPLING)}, got {self.downsampling!r}"
            )
        check_bound(self.bound, 0, "voxel grid")
        check_integers(self.keys, "[N]", "voxel grid: keys")
        if check and self.count is None and self.keys.device.type == "cpu":
            check_order(self.keys, self.batch_size, True, "voxel grid")

    def __repr__(self) -> str:
        stride, how = per_axis(self.tensor_stride), self.downsampling
        facts = {"batch_size": self.batch_size, "tensor_stride": stride, "downsampling": how}
        return one_line(self, rows=self.rows, **facts, device=self.device)

    @property
    def extent(self) -> Box:
        """A box that holds all sites: lowest and highest coordinate along x, y and z."""
        return self.box or ((-self.bound,) * 3, (self.bound,) * 3)

    @staticmethod
    def collate(grids: Sequence[VoxelGrid]) -> VoxelGrid:
        """Join single clouds into one batch, in the order given.

        Rows of the result are the rows of the first grid, then of the second, and so on: the batch
        sits in the highest bits of a key, so the joined keys are sorted already.

        Raises:
            ValueError: no grid, a grid of several clouds, or grids of unlike stride, downsampling
                or spatial shape.
        """
        joined = VoxelGrid._joined(grids, "tensor stride, downsampling or spatial shape")
        bound, box = max(g.bound for g in grids), joint_box([g.extent for g in grids])
        return replace(grids[0], bound=bound, box=box, **joined)

    def _coarser(self, kernel: Kernel) -> VoxelGrid:
        """``floor``: ``stride * floor(c / stride)``; ``reached``: sites that a triplet reaches."""
        return (_floored if self.downsampling == "floor" else _reached)(self, kernel)

    @property
    def order(self) -> Tensor | None:
        """``[P]`` int32, points by row, as they came within one; ``None``: unknown."""
        return self._order

    def keep_order(self, order: Tensor) -> VoxelGrid:
        """Keep the `order` of the points that the grid was made from; returns the grid."""
        object.__setattr__(self, "_order", order)
        return self

    def dilated(
        self, kernel: Kernel, derive: Callable[[VoxelGrid, Kernel], VoxelGrid] | None = None
    ) -> VoxelGrid:
        """See `Geometry.dilated`; the sites are kept as a level."""
        if kernel.is_strided:
            raise ValueError(f"dilated sites are those of stride 1, got {kernel.stride}")
        return self if kernel.is_pointwise else self._derived(kernel, derive or _reached)

    def reached_level(self, kernel: Kernel, keys: Tensor, up: bool = False) -> VoxelGrid:
        """The level of the sites ``keys`` that a kernel reaches (``up``: generates); not kept."""
        stride, shape, box = self.stride_after(kernel, up), self.spatial_shape, None
        bound = self.bound + kernel.reach * max(stride if up else self.tensor_stride)
        if shape is not None:
            shape = kernel.shape_before(shape) if up else kernel.shape_after(shape)
            ends = ((n - 1) * step for n, step in zip(shape, stride, strict=True))
            x, y, z = (min(bound, max(0, end)) for end in ends)
            box, bound = ((0, 0, 0), (x, y, z)), max(x, y, z)
        facts = {"bound": bound, "tensor_stride": stride, "box": box, "spatial_shape": shape}
        none: dict[str, Any] = {"inverse": None, "finer": (), "count": None}
        return replace(self, keys=keys, **facts, **none)  # type: ignore[arg-type]

    def floor_level(
        self, stride: Triple, keys: Tensor, inverse: Tensor, count: Tensor | None = None
    ) -> VoxelGrid:
        """The level of the sites ``stride * floor(c / stride)``; it is not kept with this grid."""
        (a, b, c), (d, e, f) = self.extent
        x, y, z = stride
        box = (a // x * x, b // y * y, c // z * z), (d // x * x, e // y * y, f // z * z)
        shape = self.spatial_shape
        if shape is not None:
            axes = zip(shape, self.tensor_stride, stride, strict=True)
            u, v, w = (-(-n * fine // coarse) for n, fine, coarse in axes)
            shape = u, v, w
        facts = self.bound + max(stride) - 1, stride, self.downsampling, inverse, box
        return VoxelGrid(keys, self.batch_size, *facts, self.inverses(), count, shape)

    def stride_after(self, kernel: Kernel, up: bool = False) -> Triple:
        """Tensor stride of the sites that a kernel makes of these, or ``up`` its transpose."""
        (x, y, z), (a, b, c) = self.tensor_stride, kernel.stride
        if not up:
            return x * a, y * b, z * c
        if x % a or y % b or z % c:
            raise ValueError(
                f"tensor stride {self.tensor_stride} is not divisible by {kernel.stride}"
            )
        return x // a, y // b, z // c

    @property
    def _kind(self) -> tuple[Any, ...]:
        return *super()._kind, self.downsampling, self.spatial_shape

    def _level_key(self, kernel: Kernel, down: bool) -> tuple[str, Kernel | Triple]:
        # kernels of one stride reach other sites, and have one floor
        by_kernel = down and self.downsampling == "reached"
        return ("down", kernel) if by_kernel else super()._level_key(kernel, down)

    def generated(self, kernel: Kernel) -> VoxelGrid:
        """Finer sites that a transposed convolution of this grid reaches."""
        return self._derived(kernel, partial(_reached, up=True), down=False)

    def _check_new_map(self, out: VoxelGrid, kernel: Kernel, anywhere: bool = False) -> None:
        super()._check_new_map(out, kernel)
        reach = kernel.reach * max(self.tensor_stride)
        check_bound(max(self.bound, out.bound), reach, "kernel map")


def joint_box(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds all boxes."""
    lows, highs = zip(*boxes, strict=True)
    x, y, z = (min(axis) for axis in zip(*lows, strict=True))
    u, v, w = (max(axis) for axis in zip(*highs, strict=True))
    return (x, y, z), (u, v, w)


def cells_along(box: Box, stride: Triple) -> Triple:
    """Cells of a level along x, y and z of a box."""
    x, y, z = (high // step - low // step + 1 for low, high, step in zip(*box, stride, strict=True))
    return x, y, z


def _floored(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    stride = grid.stride_after(kernel)
    coords = grid.coords.to(torch.int64)
    coords[:, 1:] -= coords[:, 1:] % torch.tensor(stride, device=grid.device)
    keys, inverse = torch.unique(pack(coords), sorted=True, return_inverse=True)
    return grid.floor_level(stride, keys, inverse)


def _reached(grid: VoxelGrid, kernel: Kernel, up: bool = False) -> VoxelGrid:
    """Sites that some triplet reaches, or ``up`` those of a transposed kernel, in torch."""
    stride = grid.stride_after(kernel, up)
    spacing = stride if up else grid.tensor_stride
    check_bound(grid.bound, kernel.reach * max(spacing), "reached sites")
    offsets = torch.tensor(kernel.offsets, device=grid.device)
    offsets = offsets * torch.tensor(spacing, device=grid.device)
    around = grid.coords.to(torch.int64)[:, None].repeat(1, kernel.volume, 1)  # [N, K, 4]
    around[:, :, 1:] += offsets if up else -offsets
    # stride * out = in - (dilation * slot - padding): those for which it divides
    step = torch.tensor(stride, device=grid.device)
    inside = (around[:, :, 1:] % step == 0).all(2)
    level = grid.reached_level(kernel, grid.keys[:0], up)
    if level.spatial_shape is not None:
        end = torch.tensor(level.spatial_shape, device=grid.device) * step
        inside &= ((around[:, :, 1:] >= 0) & (around[:, :, 1:] < end)).all(2)
    return replace(level, keys=torch.unique(pack(around[inside]), sorted=True))


def find_keys(keys: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of keys among sorted ones, by binary search."""
    if not len(keys):
        return torch.zeros_like(wanted), torch.zeros_like(wanted, dtype=torch.bool)
    rows = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
    return rows, keys[rows] == wanted


def find_cells(grid: VoxelGrid, cells: Tensor, batch: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows of the sites at given cells."""
    if batch is None and grid.batch_size != 1:
        raise ValueError(f"the sites are of {grid.batch_size} clouds: give the batch, [P] integers")
    if batch is None:
        clouds = torch.zeros(len(cells), dtype=torch.int64, device=cells.device)
    else:
        check_batch(batch, len(cells))
        clouds = batch.to(torch.int64)
    if not cells.is_floating_point():
        cells = cells.to(torch.int64)
    inside = (clouds >= 0) & (clouds < grid.batch_size)  # [P]
    inside &= ((cells >= -HALF) & (cells < HALF)).all(1)
    coords = torch.cat([clouds[:, None], cells], dim=1)
    coords = torch.where(inside[:, None], coords, 0).to(torch.int64)  # [P, 4]
    rows, there = find_keys(grid.keys, pack(coords))
    return rows, there & inside


def require_voxels(geometry: Geometry, operation: str) -> VoxelGrid:
    """The geometry, if it is a voxel grid."""
    if not isinstance(geometry, VoxelGrid):
        raise TypeError(
            f"{operation} takes sites of a VoxelGrid, got a {type(geometry).__name__}; "
            "pcnn.voxelize makes voxels of points"
        )
    return geometry
