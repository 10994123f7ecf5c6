"""Native points of a batch of clouds, sorted by cell, of float points; levels derived from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry.base import Finer, Geometry, joined_rows
from pcnn.geometry.checks import (
    check_finite,
    check_integers,
    check_order,
    check_points,
    clouds_of,
    voxel_sizes,
)
from pcnn.geometry.kernel_map import one_line, per_axis
from pcnn.geometry.kernel_slots import Kernel, Triple
from pcnn.geometry.packing import HALF, pack, pack_fields

Sizes = tuple[float, float, float]

#: Origins are multiples of so many cells, rounded up to a power of two [m].
_ORIGIN_CELLS = 1024
#: Cells from zero within which float64 coordinates have digits left inside a cell.
_EXACT_CELLS = 2.0**48


@dataclass(frozen=True, eq=False)
class PointSet(Geometry):
    """Where the features of a native-point tensor live (PointCNN++ 3.2).

    Rows are sorted by (batch, cell x, y, z), points of one cell in the order they came; a point may
    occur twice. Cell ``c`` of cloud b begins at ``corners[b] + c * voxel_size``. Levels and kernel
    maps are kept with a set (`Geometry`), and no copy of it takes them along: neither
    `dataclasses.replace` nor `copy` nor `pickle`.

    Args:
        points: ``[N, 3]`` float32 [m], relative to the origin of their cloud.
        origins: ``[B, 3]`` float64 [m]; coordinates are ``points + origins[batch_index]``, so
            frames far from zero keep their precision.
        corners: ``[B, 3]`` float64 [m], where cell (0, 0, 0) of every cloud begins.
        keys: ``[N]`` int64 packed cells, in units of this level's cells; sorted, repeated.
        batch_size: number of clouds, empty ones included.
        voxel_size: edge of a cell of this level along x, y and z [m].
        tensor_stride: the same in cells of the finest level.
        one_per_cell: no cell holds two points.
        inverse: ``[P]`` int64, row of every point the set was made from; on a coarser level the
            row above every row of the finer one; ``None`` if it is not known. A coarse cell keeps
            the point nearest to its centre.
        chosen: ``[N]`` int64, which of those points, or rows of the finer level, every row is.
        memory: most memory that kernel maps may take [GB]; ``None``: what the device allows.
        finer: of a level, the inverses from the points up to the finer set; ``None`` if they are
            not known.
        count: ``[1]`` int32 on the device of the keys, rows that are points; ``None``: all of them.
            Spare rows follow; their key is the sentinel, and no map leads from or to them.
        check: whether to look at the contents of keys on the host, where that waits for no device.

    Raises:
        ValueError: points, frames or keys of other shapes or dtypes, keys that are seen to be
            unsorted, of no cloud, or repeated where ``one_per_cell``.
    """

    points: Tensor
    origins: Tensor
    corners: Tensor
    keys: Tensor
    batch_size: int
    voxel_size: Sizes
    tensor_stride: Triple = (1, 1, 1)
    one_per_cell: bool = False
    inverse: Tensor | None = None
    chosen: Tensor | None = None
    memory: float | None = None
    finer: Finer = ()
    count: Tensor | None = None
    check: InitVar[bool] = True

    by_row: ClassVar[tuple[str, ...]] = ("points", "keys", "chosen")
    name: ClassVar[str] = "point"
    kind: ClassVar[str] = "point set"
    short: ClassVar[str] = "set"
    maps_by_builder: ClassVar[bool] = True

    def __post_init__(self, check: bool) -> None:
        self._start()
        check_integers(self.keys, "[N]", "point set: keys")
        rows, clouds = self.rows, self.batch_size
        for name, tensor, wanted, dtype in (
            ("points", self.points, (rows, 3), torch.float32),
            ("origins", self.origins, (clouds, 3), torch.float64),
            ("corners", self.corners, (clouds, 3), torch.float64),
        ):
            if tensor.shape != wanted or tensor.dtype != dtype:
                raise ValueError(
                    f"point set: {name} must be {list(wanted)} {dtype} for {rows} keys of {clouds} "
                    f"clouds, got {list(tensor.shape)} {tensor.dtype}"
                )
        if check and self.count is None and self.keys.device.type == "cpu":
            check_order(self.keys, clouds, self.one_per_cell, "point set")

    def __repr__(self) -> str:
        size, stride = per_axis(self.voxel_size), per_axis(self.tensor_stride)
        facts = {"batch_size": self.batch_size, "voxel_size": size, "tensor_stride": stride}
        return one_line(self, rows=self.rows, **facts, device=self.device)

    @property
    def plan_kind(self) -> bool:
        """Whether no cell holds two points: plans of native points depend on it."""
        return self.one_per_cell

    @property
    def cells(self) -> Tensor:
        """``[N, 4]`` int32 (batch, x, y, z), cell of every point in units of this level's cells."""
        return self.coords

    @property
    def positions(self) -> Tensor:
        """``[N, 3]`` float64 coordinates [m] in the frame the points came in."""
        return self.points.to(torch.float64) + self.origins[self.batch_index]

    def points_about(self, other: PointSet) -> Tensor:
        """``[N, 3]`` float32 points relative to the origins of another set of the same clouds."""
        if other.origins is self.origins:
            return self.points
        return (self.positions - other.origins[self.batch_index]).to(torch.float32)

    @staticmethod
    def collate(sets: Sequence[PointSet]) -> PointSet:
        """Join single clouds into one batch, in the order given.

        Rows of the result are the rows of the first set, then of the second, and so on; so are the
        points that ``inverse`` and ``chosen`` count.

        Raises:
            ValueError: no set, a set of several clouds, or sets of unlike cells.
        """
        joined = PointSet._joined(sets, "cell or tensor stride")
        below = [len(s.inverse) for s in sets if s.inverse is not None]
        chosen = [s.chosen for s in sets if s.chosen is not None]
        known = joined["inverse"] is not None and len(chosen) == len(sets)
        return replace(
            sets[0],
            points=torch.cat([s.points for s in sets]),
            origins=torch.cat([s.origins for s in sets]),
            corners=torch.cat([s.corners for s in sets]),
            one_per_cell=all(s.one_per_cell for s in sets),
            chosen=joined_rows(chosen, below) if known else None,
            **joined,
        )

    @property
    def _kind(self) -> tuple[Any, ...]:
        return *super()._kind, self.voxel_size

    def _coarser(self, kernel: Kernel) -> PointSet:
        """One point in every coarse cell that holds a point; the host waits for their number."""
        cells = self.cells.to(torch.int64)
        step = torch.tensor(kernel.stride, device=self.device)
        cells[:, 1:] = torch.div(cells[:, 1:], step, rounding_mode="floor")
        keys, inverse = torch.unique(pack(cells), sorted=True, return_inverse=True)
        coarse = self.level_of(kernel.stride, self.points.new_empty(len(keys), 3), keys, inverse)
        offsets = self.points.to(torch.float64) - coarse.centres[inverse]
        chosen = nearest_rows(offsets, inverse, coarse.rows)
        return replace(coarse, points=self.points[chosen], chosen=chosen)

    def level_of(
        self,
        stride: Triple,
        points: Tensor,  # [N, 3] float32, in the frames of this set
        keys: Tensor,  # [N] int64 coarse cells, sorted
        inverse: Tensor,  # [rows] int64 coarse row of every row of this set
        chosen: Tensor | None = None,  # [N] int64, which row of this set each is
    ) -> PointSet:
        """The set of one point a coarse cell."""
        (x, y, z), (a, b, c), (u, v, w) = self.tensor_stride, stride, self.voxel_size
        return replace(
            self,
            points=points,
            keys=keys,
            voxel_size=(u * a, v * b, w * c),
            tensor_stride=(x * a, y * b, z * c),
            one_per_cell=True,
            inverse=inverse,
            chosen=chosen,
            finer=self.inverses(),
        )

    @property
    def centres(self) -> Tensor:
        """``[N, 3]`` float64: the centre of every row's cell, from the origins of the clouds."""
        size = torch.tensor(self.voxel_size, dtype=torch.float64, device=self.device)
        start = (self.corners - self.origins)[self.batch_index]
        return (self.cells[:, 1:].to(torch.float64) + 0.5) * size + start

    def rows_above(self, coarse: PointSet) -> Tensor | None:
        """``[N]`` int64 row of a coarser level above every row, over the levels between them."""
        for level in self._levels.values():
            if level is coarse:
                return level.inverse
            above = level.rows_above(coarse)
            if above is not None and level.inverse is not None:
                return above[level.inverse]
        return None

    def generated(self, kernel: Kernel) -> PointSet:
        """Refuse to make finer points: nothing says where they would lie."""
        raise ValueError(f"{kernel} cannot generate native points; give the finer ones")

    def _check_new_map(self, out: PointSet, kernel: Kernel, anywhere: bool = True) -> None:
        super()._check_new_map(out, kernel, anywhere)


def nearest_rows(offsets: Tensor, cell: Tensor, cells: int) -> Tensor:
    """Row of the point nearest to the centre of every cell; of equally near ones the lowest.

    Distances are sums of squares in the order x, y, z, one rounding an operation, so that every
    device and every run chooses the same rows. Nothing waits for the device.
    """
    x, y, z = (offsets * offsets).unbind(1)
    distance = x + y + z
    least = torch.full((cells,), torch.inf, dtype=distance.dtype, device=distance.device)
    least.scatter_reduce_(0, cell, distance, "amin")
    n = cell.shape[0]
    rows = torch.arange(n, device=cell.device)
    rows = torch.where(distance == least[cell], rows, n)
    return torch.full((cells,), n, device=cell.device).scatter_reduce_(0, cell, rows, "amin")


def point_set_of(
    points: Tensor,  # [P, 3] floating point coordinates [m]
    batch: Tensor | None = None,  # [P] integers, cloud of every point; None means one cloud
    batch_size: int | None = None,
    voxel_size: float | Sequence[float] = 1.0,
    thin: float | Sequence[float] | None = None,
    memory: float | None = None,  # most that kernel maps may take [GB]
) -> PointSet:
    """Point set of points, each kept where it is, sorted by the cell ``floor(p / voxel_size)``.

    Every cloud is centred in float64 before its points are rounded to float32. Origins are
    multiples of a power of two, at least 1024 cells: a cloud around zero has origin 0 and keeps its
    float32 points as they are, and differences of float32 points stay what they were. Cells are
    counted from zero, as voxels are, unless the cloud's centre lies beyond a quarter of what a
    packed key holds; then from a multiple of that. The host waits for the device twice, of several
    clouds thrice, and three times more to thin them.
    """
    check_points(points, batch)
    sizes = voxel_sizes(voxel_size, "voxel_size")
    if memory is not None and not 0 < memory < math.inf:
        raise ValueError(f"memory must be positive [GB] or none, got {memory}")
    exact, thinned = points.to(torch.float64), sizes if thin is None else voxel_sizes(thin, "thin")
    if thin is None or not len(points):
        return _sorted(exact, batch, batch_size, sizes, memory)
    every = _Cells.of(exact, batch, batch_size, thinned)
    keys, order = every.keys.sort(stable=True)
    cell = (keys.diff(prepend=keys[:1]) != 0).cumsum(0)
    offsets = every.from_centres(exact).index_select(0, order)
    rows = nearest_rows(offsets, cell, int(cell[-1]) + 1)
    kept = order.index_select(0, rows)  # [kept] of the input
    batch = None if every.batch is None else every.batch.index_select(0, kept)
    few = _sorted(exact.index_select(0, kept), batch, len(every.origins), sizes, memory)
    assert few.chosen is not None
    assert few.inverse is not None
    inverse = torch.empty_like(order).scatter_(0, order, few.inverse.index_select(0, cell))
    return replace(few, inverse=inverse, chosen=kept.index_select(0, few.chosen))


def _sorted(
    points: Tensor, batch: Tensor | None, batch_size: int | None, sizes: Sizes, memory: float | None
) -> PointSet:
    cells = _Cells.of(points, batch, batch_size, sizes)
    keys, order = cells.keys.sort(stable=True)
    rising = torch.arange(len(order), device=order.device)
    return PointSet(
        cells.about_origins(points).index_select(0, order),
        cells.origins,
        cells.corners,
        keys,
        len(cells.origins),
        sizes,
        one_per_cell=bool(keys.diff().all()),
        inverse=torch.empty_like(order).scatter_(0, order, rising),
        chosen=order,
        memory=memory,
    )


class _Cells(NamedTuple):
    """Cells of points, and where their clouds lie."""

    batch: Tensor | None  # [P] int64; None: all points are of one cloud
    cells: Tensor  # [P, 3] float64 whole numbers, counted from the corner of their cloud
    keys: Tensor  # [P] int64
    size: Tensor  # [1, 3] float64
    origins: Tensor  # [B, 3] float64
    corners: Tensor  # [B, 3] float64

    @classmethod
    def of(
        cls, points: Tensor, batch: Tensor | None, batch_size: int | None, sizes: Sizes
    ) -> _Cells:
        """Refuses points that are not finite, and cells that keys do not hold, in one wait."""
        if batch is None and len(points) and batch_size in (None, 1):
            clouds = 1
            box = torch.stack(points.aminmax(dim=0))[:, None].cpu()
            whole = bool(box.isfinite().all())
        else:
            batch = points.new_zeros(len(points)) if batch is None else batch
            batch = batch.to(torch.int64)
            whole, first, last = True, 0, 0 if batch_size is None else -1
            if len(points):
                finite = torch.isfinite(points).all().to(torch.int64)
                whole, first, last = torch.stack([finite, *batch.aminmax()]).tolist()
            clouds = clouds_of(first, last, batch_size) if whole else 1
            box = _boxes(points, batch, clouds).cpu() if whole else points
        if not whole:
            check_finite(points)  # says which
        middle = (box[0] + box[1]) / 2  # [B, 3]
        middle = torch.where(torch.isfinite(middle), middle, 0.0)  # of an empty cloud
        unit = 2.0 ** math.ceil(math.log2(_ORIGIN_CELLS * max(sizes)))
        size = torch.tensor([sizes], dtype=torch.float64)
        quarter = HALF // 2  # of what an axis holds
        first_cell = torch.round(middle / size / quarter) * quarter  # whole numbers
        if len(points):
            _check_cells(torch.floor(box / size), first_cell)
        frame = torch.round(middle / unit) * unit, first_cell * size, size, first_cell
        there = torch.cat(frame).to(points.device, non_blocking=True)
        origins, corners, size, start = there.split([clouds, clouds, 1, clouds])
        cells = (points / size).floor_().sub_(start if batch is None else start[batch])
        keys = pack_fields(batch, *cells.to(torch.int64).unbind(1))
        return cls(batch, cells, keys, size, origins, corners)

    def about_origins(self, points: Tensor) -> Tensor:
        """``[P, 3]`` float32: these points from the origins of their clouds."""
        return (points - self._of(self.origins)).to(torch.float32)

    def from_centres(self, points: Tensor) -> Tensor:
        """``[P, 3]`` float64: these points, as float32 holds them, from the centres of cells."""
        centres = (self.cells + 0.5) * self.size + self._of(self.corners - self.origins)
        return self.about_origins(points).to(torch.float64) - centres

    def _of(self, frames: Tensor) -> Tensor:
        return frames if self.batch is None else frames[self.batch]


def _boxes(points: Tensor, batch: Tensor, clouds: int) -> Tensor:
    """``[2, B, 3]`` float64 lowest and highest corner of every cloud; of an empty one beyond."""
    index = batch[:, None].expand(-1, 3)
    low = points.new_full((clouds, 3), torch.inf).scatter_reduce_(0, index, points, "amin")
    high = points.new_full((clouds, 3), -torch.inf).scatter_reduce_(0, index, points, "amax")
    return torch.stack([low, high])


def _check_cells(box: Tensor, first_cell: Tensor) -> None:
    """Refuse cells that keys do not hold, of boxes of whole cells counted from zero."""
    farthest = max(-float(box[0].amin()), float(box[1].amax()))
    if not farthest < _EXACT_CELLS:
        raise ValueError(
            f"point set: coordinates lie {farthest:.3g} cells from zero, where float64 tells "
            "cells no longer apart; subtract an offset"
        )
    ends = (box[0] - first_cell).amin(0).tolist(), (box[1] - first_cell).amax(0).tolist()
    for name, low, high in zip("xyz", *ends, strict=True):
        if max(high, -low) >= HALF:
            raise ValueError(
                f"point set: cells lie at {low:.0f}..{high:.0f} along {name} about the middle of "
                f"their cloud, but a packed key holds {1 - HALF}..{HALF - 1}"
            )
