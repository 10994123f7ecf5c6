"""Native points of a batch of clouds, sorted by cell, and the levels derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pcnn.geometry.base import Finer, Geometry, joined_rows
from pcnn.geometry.checks import check_integers, check_order
from pcnn.geometry.kernel_map import one_line, per_axis
from pcnn.geometry.kernel_slots import Kernel, Triple
from pcnn.geometry.packing import pack

Sizes = tuple[float, float, float]


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
