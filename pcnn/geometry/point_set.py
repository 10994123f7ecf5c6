"""Native points of a batch of clouds, sorted by cell, and the levels and maps derived from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from pcnn.geometry.coarse_points import coarser, in_cells
from pcnn.geometry.inverses import Finer, collated, joined_rows, point_rows
from pcnn.geometry.kept import kept
from pcnn.geometry.kernel import Kernel, Triple
from pcnn.geometry.kernel_map import KernelMap
from pcnn.geometry.key_checks import check_integers, check_order, check_rows
from pcnn.geometry.map_cache import MapCache, check_new_map
from pcnn.geometry.neighbourhood import USUAL, Neighbourhood
from pcnn.geometry.one_line import one_line, per_axis
from pcnn.geometry.packing import DEFAULT_LAYOUT, KeyLayout

Sizes = tuple[float, float, float]

POINT_SITES = ("nearest", "cell_origin")

#: How far a float32 point may lie beside the cell that its float64 coordinates gave it [cells].
OUT_OF_CELL = 2.0**-6


class PointMapBuilder(Hashable, Protocol):
    """Finds the triplets of a kernel on native points; equal builders find the same ones."""

    def build(self, source: PointSet, target: PointSet, kernel: Kernel) -> KernelMap:
        """Kernel map from input points ``source`` to output points ``target``."""


PointSiteBuild = Callable[["PointSet", Triple], "PointSet"]


@dataclass(frozen=True, eq=False)
class PointSet:
    """Where the features of a native-point tensor live (PointCNN++ 3.2).

    Rows are sorted by (batch, cell x, y, z), points of one cell in the order they came; a point may
    occur twice. Cell ``c`` of cloud b begins at ``corners[b] + c * grid_size``. Levels and kernel
    maps derived from a set are cached on it and freed with it; the cache holds no reference cycle,
    and no copy of a set takes it along: neither `dataclasses.replace` nor `copy` nor `pickle`.

    Args:
        points: ``[N, 3]`` float32 [m], relative to the origin of their cloud.
        origins: ``[B, 3]`` float64 [m]; coordinates are ``points + origins[batch_index]``, so
            frames far from zero keep their precision.
        corners: ``[B, 3]`` float64 [m], where cell (0, 0, 0) of every cloud begins.
        keys: ``[N]`` int64 packed cells, in units of this level's cells; sorted, repeated.
        batch_size: number of clouds, empty ones included.
        grid_size: edge of a cell of this level along x, y and z [m].
        tensor_stride: the same in cells of the finest level.
        sites: points of strided convolutions, one in each coarse cell: ``nearest`` (the point
            nearest to the cell's centre) or ``cell_origin`` (the cell's lowest corner, where the
            points of the finest level lie too: the convolution is that of voxels).
        one_per_cell: no cell holds two points.
        inverse: ``[P]`` int64, row of every point the set was made from; on a coarser level the
            row above every row of the finer one; ``None`` if nobody knows.
        chosen: ``[N]`` int64, which of those points, or rows of the finer level, every row is;
            ``None`` where the rows are none of them.
        layout: bit layout of the keys.
        neighbourhood: how kernels relate the points; levels have that of the finest points.
        finer: of a level, the inverses from the points up to the finer set; ``None`` if they are
            not known.
        check: whether to look at the contents of the keys; ``None``: where that waits for no
            device, on the host. ``True`` looks everywhere and at everything (`validate`).

    Raises:
        ValueError: points, frames or keys of other shapes or dtypes, keys that are seen to be
            unsorted, of no cloud, or repeated where ``one_per_cell``; sites that do not exist.
    """

    points: Tensor
    origins: Tensor
    corners: Tensor
    keys: Tensor
    batch_size: int
    grid_size: Sizes
    tensor_stride: Triple = (1, 1, 1)
    sites: str = "nearest"
    one_per_cell: bool = False
    inverse: Tensor | None = None
    chosen: Tensor | None = None
    layout: KeyLayout = DEFAULT_LAYOUT
    neighbourhood: Neighbourhood = USUAL
    finer: Finer = ()
    check: InitVar[bool | None] = None
    # never copied: what was derived from other points would be found for these
    _levels: dict[tuple[str, Kernel | Triple], PointSet] = field(
        default_factory=dict, init=False, repr=False
    )
    _maps: MapCache = field(default_factory=MapCache, init=False, repr=False)

    def __post_init__(self, check: bool | None) -> None:
        if self.sites not in POINT_SITES:
            raise ValueError(f"sites must be one of {', '.join(POINT_SITES)}, got {self.sites!r}")
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
        if check:
            self.validate()
        elif check is None and self.keys.device.type == "cpu":
            check_order(self.keys, clouds, self.layout, self.one_per_cell, "point set")

    def validate(self) -> None:
        """Check every claim the set makes about its points; the host waits for their device.

        Raises:
            ValueError: keys that are unsorted, of no cloud, or repeated where ``one_per_cell``;
                points that lie outside their cells; rows of ``inverse`` or ``chosen`` that do not
                exist.
        """
        check_order(self.keys, self.batch_size, self.layout, self.one_per_cell, "point set")
        check_rows(self.inverse, self.rows, "point set: inverse")
        if self.inverse is not None:
            check_rows(self.chosen, len(self.inverse), "point set: chosen")
        size = torch.tensor(self.grid_size, dtype=torch.float64, device=self.device)
        places = (self.points.to(torch.float64) - in_cells(self, 0.0)) / size  # [N, 3]
        outside = ((places - 0.5).abs() > 0.5 + OUT_OF_CELL).any(1)
        if bool(outside.any()):
            raise ValueError(
                f"point set: {int(outside.sum())} of {self.rows} points lie outside the cell of "
                f"their key, the first is {int(outside.nonzero()[0])}; give the keys of these "
                "points, or make the set by pcnn.native_points"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the points without the caches: a worker sends them, the receiver derives anew."""
        tensors = self.points, self.origins, self.corners, self.keys
        fields = self.batch_size, self.grid_size, self.tensor_stride, self.sites, self.one_per_cell
        rest = self.inverse, self.chosen, self.layout, self.neighbourhood, self.finer
        return PointSet, (*tensors, *fields, *rest)

    def __repr__(self) -> str:
        size, stride = per_axis(self.grid_size), per_axis(self.tensor_stride)
        facts = {"batch_size": self.batch_size, "grid_size": size, "tensor_stride": stride}
        return one_line(self, rows=self.rows, **facts, sites=self.sites, device=self.device)

    @property
    def rows(self) -> int:
        """Number of points N."""
        return self.keys.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the points."""
        return self.keys.device

    @property
    def cells(self) -> Tensor:
        """``[N, 4]`` int32 (batch, x, y, z), cell of every point in units of this level's cells."""
        return self.layout.unpack(self.keys)

    @property
    def positions(self) -> Tensor:
        """``[N, 3]`` float64 coordinates [m] in the frame the points came in."""
        return self.points.to(torch.float64) + self.origins[self.batch_index]

    @property
    def batch_index(self) -> Tensor:
        """``[N]`` int64 cloud of every point."""
        return self.keys >> self.layout.batch_shift

    @property
    def batch_offsets(self) -> Tensor:
        """``[B + 1]`` int64: points of cloud b are rows ``offsets[b]..offsets[b + 1]``."""
        starts = torch.arange(self.batch_size + 1, device=self.device) << self.layout.batch_shift
        return torch.searchsorted(self.keys, starts)

    def point_rows(self) -> Tensor:
        """``[P]`` int64 row of every point that the set, or its finest level, was made from.

        Raises:
            ValueError: no inverses lead back to points.
        """
        return point_rows(self)

    def points_about(self, other: PointSet) -> Tensor:
        """``[N, 3]`` float32 points relative to the origins of another set of the same clouds."""
        if other.origins is self.origins:
            return self.points
        return (self.positions - other.origins[self.batch_index]).to(torch.float32)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> PointSet:
        """Return the set on another device; cached levels and maps stay behind."""
        if self.keys.device == torch.device(device):
            return self
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> PointSet:
        """Return the set in page-locked memory."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, move: Callable[[Tensor], Tensor]) -> PointSet:
        return replace(
            self,
            points=move(self.points),
            origins=move(self.origins),
            corners=move(self.corners),
            keys=move(self.keys),
            inverse=None if self.inverse is None else move(self.inverse),
            chosen=None if self.chosen is None else move(self.chosen),
            finer=None if self.finer is None else tuple(move(rows) for rows in self.finer),
            check=False,  # the same keys, and they may still be on their way
        )

    @staticmethod
    def collate(sets: Sequence[PointSet]) -> PointSet:
        """Join single clouds into one batch, in the order given.

        Rows of the result are the rows of the first set, then of the second, and so on; so are the
        points that ``inverse`` and ``chosen`` count.

        Raises:
            ValueError: no set, a set of several clouds, or sets of unlike cells, sites or layout.
        """
        if not sets:
            raise ValueError("collate needs at least one point set")
        first = sets[0]
        for position, other in enumerate(sets):
            if other.batch_size != 1:
                raise ValueError(
                    f"collate joins single clouds, but set {position} holds {other.batch_size}"
                )
            if other._kind != first._kind:
                raise ValueError(
                    f"point set {position} has another grid size, tensor stride, sites, layout or "
                    "neighbourhood than set 0; all sets of a batch need the same"
                )
        if len(sets) > first.layout.max_batch:
            raise ValueError(
                f"a batch holds at most {first.layout.max_batch} clouds, got {len(sets)}"
            )
        shift = first.layout.batch_shift
        finer, inverse = collated(sets)
        below = [len(s.inverse) for s in sets if s.inverse is not None]
        chosen = [s.chosen for s in sets if s.chosen is not None]
        if inverse is None or len(chosen) < len(sets):
            chosen = []
        return replace(
            first,
            points=torch.cat([s.points for s in sets]),
            origins=torch.cat([s.origins for s in sets]),
            corners=torch.cat([s.corners for s in sets]),
            keys=torch.cat([s.keys + (index << shift) for index, s in enumerate(sets)]),
            batch_size=len(sets),
            one_per_cell=all(s.one_per_cell for s in sets),
            inverse=inverse,
            chosen=joined_rows(chosen, below) if chosen else None,
            finer=finer,
        )

    @property
    def _kind(self) -> tuple[Any, ...]:
        cells = self.grid_size, self.tensor_stride, self.sites, self.layout
        return *cells, self.neighbourhood

    def strided(self, kernel: Kernel, derive: PointSiteBuild | None = None) -> PointSet:
        """Output points of a convolution with this kernel; the set itself at stride 1.

        One point in every coarse cell that holds a point, ``stride`` cells of this level wide (see
        ``sites``); its ``inverse`` is the coarse row of every row. The host waits for the number of
        points.

        Args:
            kernel: only its stride counts.
            derive: makes the points when they are not there yet; ``None`` for torch operations.
                Every way yields the same points, so the cache does not ask which one it was.
        """
        if not kernel.is_strided:
            return self
        key = ("down", kernel.stride)
        if key not in self._levels:
            with kept():
                self._levels[key] = (derive or coarser)(self, kernel.stride)
        return self._levels[key]

    def rows_above(self, coarse: PointSet) -> Tensor | None:
        """``[N]`` int64 row of a coarser level above every row, over the levels between them.

        ``None`` where ``coarse`` was not made from this set.
        """
        for level in self._levels.values():
            if level is coarse:
                return level.inverse
            above = level.rows_above(coarse)
            if above is not None and level.inverse is not None:
                return above[level.inverse]
        return None

    def generated(self, kernel: Kernel) -> PointSet:
        """Refuse to make finer points: nothing says where they would lie.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"a transposed convolution of stride {kernel.stride} cannot generate native points; "
            "give it the finer points, sites=..., or use voxels"
        )

    def map_to(self, out: PointSet, kernel: Kernel, builder: PointMapBuilder) -> KernelMap:
        """Kernel map from this set (input) to ``out``, built once and kept with this set.

        Args:
            out: output points; their tensor stride is this set's times the kernel's stride, but a
                kernel of stride 1 may lie around any points of the same clouds.
            kernel: the relation.
            builder: builds the map when it is not there yet. Another one has another map: settings
                of builders of native points decide which triplets there are.

        Raises:
            ValueError: strides that do not fit, or another number of clouds.
            RuntimeError: the map is not there and the call is being compiled.
        """
        found = self.cached_map(out, kernel, builder)
        if found is not None:
            return found
        check_new_map(self, out, kernel, anywhere=True)
        with kept():
            return self.add_map(out, kernel, builder.build(self, out, kernel), builder)

    def cached_level(self, kernel: Kernel, down: bool) -> PointSet | None:
        """The level that `strided` has made for this kernel, if it has."""
        return self._levels.get(("down", kernel.stride)) if down else None

    def cached_map(
        self, out: PointSet, kernel: Kernel, builder: PointMapBuilder | None = None
    ) -> KernelMap | None:
        """The map to ``out`` that is kept with this set: the builder's, or one that was given."""
        maps = self._maps.of(self, out)
        return maps.get((kernel.key, builder)) or maps.get((kernel.key, None))

    def maps_to(self, out: PointSet) -> dict[tuple[Kernel, PointMapBuilder | None], KernelMap]:
        """All maps to ``out`` that are kept with this set, by kernel and builder."""
        maps = self._maps.of(self, out)
        return {(Kernel.of(*key), builder): built for (key, builder), built in maps.items()}

    def cached_levels(self) -> list[PointSet]:
        """Levels made from this set so far."""
        return list(self._levels.values())

    def cached_maps(self) -> list[KernelMap]:
        """Maps from this set's points built so far."""
        return self._maps.all()

    def add_map(
        self,
        out: PointSet,
        kernel: Kernel,
        built: KernelMap,
        builder: PointMapBuilder | None = None,
    ) -> KernelMap:
        """Keep a map; the one that is there already stays.

        Args:
            out: output points.
            kernel: the relation.
            built: the map.
            builder: whose map it is; ``None``: it serves every layer of this kernel that has not
                built its own.
        """
        return self._maps.add(self, out, kernel, built, (kernel.key, builder))
