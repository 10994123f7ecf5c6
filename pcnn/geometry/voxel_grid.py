"""Sorted, unique, packed voxels of a batch of clouds, and the levels and maps derived from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry.inverses import Finer, collated, finer_of_level, point_rows
from pcnn.geometry.kept import kept
from pcnn.geometry.kernel import Kernel, Triple
from pcnn.geometry.kernel_map import KernelMap
from pcnn.geometry.key_checks import check_integers, check_order, check_rows
from pcnn.geometry.map_cache import MapCache, check_new_map
from pcnn.geometry.one_line import one_line, per_axis
from pcnn.geometry.packing import DEFAULT_LAYOUT, KeyLayout

Box = tuple[Triple, Triple]
MapBuild = Callable[["VoxelGrid", "VoxelGrid", Kernel], KernelMap]

SiteBuild = Callable[["VoxelGrid", Kernel], "VoxelGrid"]

SITES = ("floor", "reached")


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """Where the features of a voxel tensor live.

    Rows are sorted by (batch, x, y, z). Coordinates of every level are in level-0 voxels, so they
    are multiples of ``tensor_stride``. Levels and kernel maps derived from a grid are cached on it
    and freed with it; the cache holds no reference cycle, and no copy of a grid takes it along:
    neither `dataclasses.replace` nor `copy` nor `pickle`.

    Args:
        keys: ``[N]`` int64 packed coordinates, sorted, unique.
        batch_size: number of clouds, empty ones included.
        bound: largest absolute coordinate, known on the host.
        tensor_stride: spacing of the sites per axis, in level-0 voxels.
        sites: output sites of strided convolutions: ``floor`` (the coarse voxel of every site) or
            ``reached`` (every site that some triplet reaches).
        inverse: ``[P]`` int64, row of every point the grid was made from; for a level made by
            floor, the row above every site of the finer grid; ``None`` otherwise.
        layout: bit layout of the keys.
        box: lowest and highest coordinate along x, y and z, if the host knows them.
        finer: of a level, the inverses from the points up to the finer grid; ``None`` if they are
            not known.
        check: whether to look at the contents of the keys; ``None``: where that waits for no
            device, on the host. ``True`` looks everywhere and at everything (`validate`).

    Raises:
        ValueError: keys of another shape or dtype, or that are seen to be unsorted, repeated or of
            no cloud; sites that do not exist; coordinates beyond the packing.
    """

    keys: Tensor
    batch_size: int
    bound: int
    tensor_stride: Triple = (1, 1, 1)
    sites: str = "floor"
    inverse: Tensor | None = None
    layout: KeyLayout = DEFAULT_LAYOUT
    box: Box | None = None
    finer: Finer = ()
    check: InitVar[bool | None] = None
    # never copied: what was derived from other keys would be found for these
    _levels: dict[tuple[str, Kernel | Triple], VoxelGrid] = field(
        default_factory=dict, init=False, repr=False
    )
    _maps: MapCache = field(default_factory=MapCache, init=False, repr=False)

    def __post_init__(self, check: bool | None) -> None:
        if self.sites not in SITES:
            raise ValueError(f"sites must be one of {', '.join(SITES)}, got {self.sites!r}")
        self.layout.check_bound(self.bound, 0, "voxel grid")
        check_integers(self.keys, "[N]", "voxel grid: keys")
        if check:
            self.validate()
        elif check is None and self.keys.device.type == "cpu":
            check_order(self.keys, self.batch_size, self.layout, True, "voxel grid")

    def validate(self) -> None:
        """Check every claim the grid makes about its sites; the host waits for their device.

        Raises:
            ValueError: keys that are unsorted, repeated or of no cloud; coordinates off the tensor
                stride or beyond ``bound`` or ``box``; an inverse with rows that do not exist.
        """
        check_order(self.keys, self.batch_size, self.layout, True, "voxel grid")
        check_rows(self.inverse, self.rows, "voxel grid: inverse")
        coords = self.coords[:, 1:]
        step = torch.tensor(self.tensor_stride, device=self.device)
        if bool((coords % step != 0).any()):
            raise ValueError(f"voxel grid: sites are no multiples of stride {self.tensor_stride}")
        for axis, name in enumerate("xyz" if self.rows else ""):
            low, high = torch.stack(coords[:, axis].aminmax()).tolist()
            for a, b in ((-self.bound, self.bound), (self.extent[0][axis], self.extent[1][axis])):
                if low < a or high > b:
                    raise ValueError(
                        f"voxel grid: sites lie at {low}..{high} along {name}, but bound and box "
                        f"say {a}..{b}; give those of these keys"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sites without the caches: a worker sends them, the receiver derives anew."""
        fields = (self.keys, self.batch_size, self.bound, self.tensor_stride, self.sites)
        return VoxelGrid, (*fields, self.inverse, self.layout, self.box, self.finer)

    def __repr__(self) -> str:
        stride = per_axis(self.tensor_stride)
        facts = {"batch_size": self.batch_size, "tensor_stride": stride, "sites": self.sites}
        return one_line(self, rows=self.rows, **facts, device=self.device)

    @property
    def rows(self) -> int:
        """Number of sites N."""
        return self.keys.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the keys."""
        return self.keys.device

    @property
    def extent(self) -> Box:
        """A box that holds all sites: lowest and highest coordinate along x, y and z."""
        return self.box or ((-self.bound,) * 3, (self.bound,) * 3)

    def coarse_box(self, stride: Triple) -> Box:
        """The box of the sites ``stride * floor(c / stride)``."""
        low, high = self.extent
        (a, b, c), (d, e, f) = low, high
        x, y, z = stride
        return (a // x * x, b // y * y, c // z * z), (d // x * x, e // y * y, f // z * z)

    @property
    def coords(self) -> Tensor:
        """``[N, 4]`` int32 (batch, x, y, z) in level-0 voxels."""
        return self.layout.unpack(self.keys)

    @property
    def batch_index(self) -> Tensor:
        """``[N]`` int64 cloud of every site."""
        return self.keys >> self.layout.batch_shift

    @property
    def batch_offsets(self) -> Tensor:
        """``[B + 1]`` int64: sites of cloud b are rows ``offsets[b]..offsets[b + 1]``."""
        starts = torch.arange(self.batch_size + 1, device=self.device) << self.layout.batch_shift
        return torch.searchsorted(self.keys, starts)

    def point_rows(self) -> Tensor:
        """``[P]`` int64 row of every point that the grid, or its finest level, was made from.

        Raises:
            ValueError: no inverses lead back to points.
        """
        return point_rows(self)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> VoxelGrid:
        """Return the grid on another device; cached levels and maps stay behind."""
        if self.keys.device == torch.device(device):
            return self
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> VoxelGrid:
        """Return the grid in page-locked memory."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, move: Callable[[Tensor], Tensor]) -> VoxelGrid:
        inverse = None if self.inverse is None else move(self.inverse)
        return replace(
            self,
            keys=move(self.keys),
            inverse=inverse,
            finer=None if self.finer is None else tuple(move(rows) for rows in self.finer),
            check=False,  # the same keys, and they may still be on their way
        )

    @staticmethod
    def collate(grids: Sequence[VoxelGrid]) -> VoxelGrid:
        """Join single clouds into one batch, in the order given.

        Rows of the result are the rows of the first grid, then of the second, and so on: the batch
        sits in the highest bits of a key, so the joined keys are sorted already.

        Raises:
            ValueError: no grid, a grid of several clouds, or grids of unlike stride, sites or
                layout.
        """
        if not grids:
            raise ValueError("collate needs at least one voxel grid")
        first = grids[0]
        for position, grid in enumerate(grids):
            if grid.batch_size != 1:
                raise ValueError(
                    f"collate joins single clouds, but grid {position} holds {grid.batch_size}"
                )
            if grid._kind != first._kind:
                raise ValueError(
                    f"grid {position} has another tensor stride, sites or layout than grid 0"
                )
        if len(grids) > first.layout.max_batch:
            raise ValueError(
                f"a batch holds at most {first.layout.max_batch} clouds, got {len(grids)}"
            )
        shift = first.layout.batch_shift
        keys = torch.cat([grid.keys + (index << shift) for index, grid in enumerate(grids)])
        finer, inverse = collated(grids)
        return VoxelGrid(
            keys,
            len(grids),
            max(grid.bound for grid in grids),
            first.tensor_stride,
            first.sites,
            inverse,
            first.layout,
            _joint_box([grid.extent for grid in grids]),
            finer,
        )

    @property
    def _kind(self) -> tuple[Any, ...]:
        return self.tensor_stride, self.sites, self.layout

    def strided(self, kernel: Kernel, derive: SiteBuild | None = None) -> VoxelGrid:
        """Output sites of a convolution with this kernel; the grid itself at stride 1.

        ``floor``: ``stride * floor(c / stride)`` of every site, whatever the kernel.
        ``reached``: every coarse site that some triplet of the relation reaches.

        Args:
            kernel: the relation.
            derive: makes the sites when they are not there yet; ``None`` for torch operations.
                Every way yields the same sites, so the cache does not ask which one it was.
        """
        if not kernel.is_strided:
            return self
        by_floor = self.sites == "floor"
        key = ("down", kernel.stride if by_floor else kernel)
        if key not in self._levels:
            derive = derive or (_floor_sites if by_floor else _reached)
            with kept():
                self._levels[key] = derive(self, kernel)
        return self._levels[key]

    def floor_level(self, stride: Triple, keys: Tensor, inverse: Tensor) -> VoxelGrid:
        """The level of the sites ``stride * floor(c / stride)``; it is not kept with this grid.

        Args:
            stride: tensor stride of the level.
            keys: ``[N]`` int64, its sites.
            inverse: ``[rows]`` int64, row of the level above every row of this grid.
        """
        return VoxelGrid(
            keys,
            self.batch_size,
            self.bound + max(stride) - 1,
            stride,
            self.sites,
            inverse,
            self.layout,
            self.coarse_box(stride),
            finer_of_level(self),
        )

    def is_below(self, coarse: VoxelGrid, kernel: Kernel) -> bool:
        """Whether ``coarse`` was made from this grid by the floor of the kernel's stride."""
        return self._levels.get(("down", kernel.stride)) is coarse

    def generated(self, kernel: Kernel) -> VoxelGrid:
        """Finer sites that a transposed convolution of this grid reaches.

        Raises:
            ValueError: the tensor stride is no multiple of the kernel's stride.
        """
        key = ("up", kernel)
        if key not in self._levels:
            with kept():
                self._levels[key] = _generated_sites(self, kernel)
        return self._levels[key]

    def map_to(self, out: VoxelGrid, kernel: Kernel, build: MapBuild) -> KernelMap:
        """Kernel map from this grid (input) to ``out``, built once and kept with this grid.

        Args:
            out: output sites; its tensor stride is this grid's times the kernel's stride.
            kernel: the relation.
            build: map builder, called when the map is not there yet. Every builder yields the same
                triplets, so the cache does not ask which one it was.

        Raises:
            ValueError: strides that do not fit, another batch, or coordinates beyond the packing.
            RuntimeError: the map is not there and the call is being compiled.
        """
        found = self._maps.of(self, out).get(kernel.key)
        if found is not None:
            return found
        check_new_map(self, out, kernel)
        reach = kernel.reach * max(self.tensor_stride)
        self.layout.check_bound(max(self.bound, out.bound), reach, "kernel map")
        with kept():
            return self.add_map(out, kernel, build(self, out, kernel))

    def cached_level(self, kernel: Kernel, down: bool) -> VoxelGrid | None:
        """The level that `strided` (or `generated`) has made for this kernel, if it has."""
        if not down:
            return self._levels.get(("up", kernel))
        return self._levels.get(("down", kernel.stride if self.sites == "floor" else kernel))

    def cached_map(self, out: VoxelGrid, kernel: Kernel) -> KernelMap | None:
        """The map to ``out`` that is kept with this grid, if there is one."""
        return self._maps.of(self, out).get(kernel.key)

    def maps_to(self, out: VoxelGrid) -> dict[Kernel, KernelMap]:
        """All maps to ``out`` that are kept with this grid, by kernel."""
        return {Kernel.of(*key): built for key, built in self._maps.of(self, out).items()}

    def cached_levels(self) -> list[VoxelGrid]:
        """Levels made from this grid so far."""
        return list(self._levels.values())

    def cached_maps(self) -> list[KernelMap]:
        """Maps from this grid's sites built so far."""
        return self._maps.all()

    def add_map(self, out: VoxelGrid, kernel: Kernel, built: KernelMap) -> KernelMap:
        """Keep a map that a plan has built and checked; the one that is there already stays."""
        return self._maps.add(self, out, kernel, built)


def _joint_box(boxes: Sequence[Box]) -> Box:
    lows, highs = zip(*boxes, strict=True)
    x, y, z = (min(axis) for axis in zip(*lows, strict=True))
    u, v, w = (max(axis) for axis in zip(*highs, strict=True))
    return (x, y, z), (u, v, w)


def _from_fields(grid: VoxelGrid, coords: Tensor, stride: Triple, bound: int) -> VoxelGrid:
    """Grid of the unique sites among ``coords`` ``[M, 4]``, on the batch of ``grid``."""
    keys = torch.unique(grid.layout.pack(coords), sorted=True)
    return VoxelGrid(keys, grid.batch_size, bound, stride, grid.sites, None, grid.layout)


def _coarse_stride(grid: VoxelGrid, kernel: Kernel) -> Triple:
    (x, y, z), (a, b, c) = grid.tensor_stride, kernel.stride
    return x * a, y * b, z * c


def _floor_sites(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    stride = _coarse_stride(grid, kernel)
    coords = grid.coords.to(torch.int64)
    step = torch.tensor(stride, device=grid.device)
    coords[:, 1:] = torch.div(coords[:, 1:], step, rounding_mode="floor") * step
    keys, inverse = torch.unique(grid.layout.pack(coords), sorted=True, return_inverse=True)
    return grid.floor_level(stride, keys, inverse)


def _reached(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    stride = _coarse_stride(grid, kernel)
    coords = grid.coords.to(torch.int64)  # [N, 4]
    fine = torch.tensor(grid.tensor_stride, device=grid.device)
    step = torch.tensor(stride, device=grid.device)
    # stride * out = in - (dilation * slot - padding): keep the slots for which it divides
    offsets = kernel.offset_tensor(grid.device) * fine  # [K, 3]
    targets = coords[:, None, 1:] - offsets  # [N, K, 3]
    hits = (torch.remainder(targets, step) == 0).all(-1)  # [N, K]
    rows, slots = hits.nonzero(as_tuple=True)
    reached = torch.cat([coords[rows, :1], targets[rows, slots]], dim=1)
    reach = kernel.reach * max(grid.tensor_stride)
    grid.layout.check_bound(grid.bound, reach, "reached sites")
    return _from_fields(grid, reached, stride, grid.bound + reach)


def _generated_sites(grid: VoxelGrid, kernel: Kernel) -> VoxelGrid:
    if any(t % s for t, s in zip(grid.tensor_stride, kernel.stride, strict=True)):
        raise ValueError(
            f"a transposed convolution of stride {kernel.stride} needs a tensor stride divisible "
            f"by it, got {grid.tensor_stride}"
        )
    (x, y, z), (a, b, c) = grid.tensor_stride, kernel.stride
    stride = (x // a, y // b, z // c)
    fine = torch.tensor(stride, device=grid.device)
    coords = grid.coords.to(torch.int64)
    offsets = kernel.offset_tensor(grid.device) * fine  # [K, 3]
    reach = kernel.reach * max(stride)
    grid.layout.check_bound(grid.bound, reach, "generated sites")
    targets = coords[:, None, :].repeat(1, kernel.volume, 1)  # [N, K, 4]
    targets[:, :, 1:] += offsets
    return _from_fields(grid, targets.reshape(-1, 4), stride, grid.bound + reach)
