"""Base of voxels and native points: a batch of sorted cells that keeps its levels and maps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from pcnn.geometry.kernel_map import KernelMap, outside_inference_mode
from pcnn.geometry.kernel_slots import Kernel, Triple
from pcnn.geometry.packing import BATCH_SHIFT, MAX_BATCH, unpack

if TYPE_CHECKING:
    from typing_extensions import Self

#: Inverses from the points up to a level's finer one; ``None``: they are not known.
Finer = tuple[Tensor, ...] | None

#: Maps by `Kernel.key` and builder: all that decides about the triplets.
Maps = dict[tuple[Any, Any], KernelMap]

_NONE: Maps = {}


class Builder(Hashable, Protocol):
    """Finds all triplets of a convolution; equal settings have equal hashes.

    Builders differ in speed only: the set of triplets, and their order (by slot, then output row),
    is the same for all. One that is made of device kernels alone has ``device_only = True``.
    """

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    def build(self, source: Any, target: Any, kernel: Kernel) -> KernelMap:
        """Kernel map from input sites ``source`` to output sites ``target``."""


class BuilderChoice(Protocol):
    """The part of an engine that a geometry asks: the builder that finds the triplets."""

    def builder_of(self, geometry: str) -> Builder | None:
        """The builder on ``voxel`` or ``point``; ``None``: it does not serve them."""

    def unserved(self, geometry: str) -> ValueError:
        """The error about a geometry that it does not serve."""


class Geometry:
    """Where the features of a sparse tensor live: `VoxelGrid` or `PointSet`.

    Rows are sorted by (batch, x, y, z). Levels and kernel maps derived from a geometry are cached
    on it and freed with it: a map is found by a weak reference to its other geometry.
    """

    # fields of the kinds, which are frozen dataclasses, in their own order
    keys: Tensor
    batch_size: int
    tensor_stride: Triple
    inverse: Tensor | None
    finer: Finer
    #: ``[1]`` int32 on the device, rows that hold a site; ``None``: all of them
    count: Tensor | None = None

    #: fields with an entry for every row
    by_row: ClassVar[tuple[str, ...]] = ("keys",)

    #: how engines and configurations call the kind, messages one geometry, and one of several
    name: ClassVar[str]
    kind: ClassVar[str]
    short: ClassVar[str]
    #: whether every builder has maps of its own; otherwise all builders find the same triplets
    maps_by_builder: ClassVar[bool] = False

    _levels: dict[tuple[str, Kernel | Triple], Self]
    _maps: Maps  # to this geometry itself
    _maps_to_others: WeakKeyDictionary[Geometry, Maps]
    _order: Tensor | None

    def _start(self) -> None:
        """Begin without levels and maps: those derived from other keys do not belong to a copy."""
        object.__setattr__(self, "_levels", {})
        object.__setattr__(self, "_maps", {})
        object.__setattr__(self, "_maps_to_others", WeakKeyDictionary())
        object.__setattr__(self, "_order", None)

    def _fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the caches: a worker sends the sites, the receiver derives its own."""
        make = partial(type(self), check=False)  # type: ignore[call-arg]  # of every subclass
        return make, tuple(self._fields().values())

    @property
    def rows(self) -> int:
        """Number of rows N."""
        return self.keys.shape[0]

    @property
    def device(self) -> torch.device:
        """Device of the keys."""
        return self.keys.device

    @property
    def coords(self) -> Tensor:
        """``[N, 4]`` int32 (batch, x, y, z): voxels of the finest level, or cells of the own."""
        return unpack(self.keys)

    @property
    def batch_index(self) -> Tensor:
        """``[N]`` int64 cloud of every row."""
        return self.keys >> BATCH_SHIFT

    @property
    def batch_offsets(self) -> Tensor:
        """``[B + 1]`` int64: rows of cloud b are ``offsets[b]..offsets[b + 1]``."""
        starts = torch.arange(self.batch_size + 1, device=self.device)
        return torch.searchsorted(self.keys, starts << BATCH_SHIFT)

    @property
    def plan_kind(self) -> bool | None:
        """`PointSet.plan_kind`; ``None`` on voxels, where plans depend on the network alone."""
        return None

    def tensors(self) -> list[Tensor]:
        """All tensors of the fields; those of levels and maps are not among them."""
        values = self._fields().values()
        parts = (value if isinstance(value, tuple) else (value,) for value in values)
        return [tensor for part in parts for tensor in part if isinstance(tensor, Tensor)]

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        """Return the geometry on another device; cached levels and maps stay behind."""
        if self.keys.device == torch.device(device):
            return self
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        """Return the geometry in page-locked memory."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, move: Callable[[Tensor], Tensor]) -> Self:
        moved: dict[str, Any] = {}
        for name, value in self._fields().items():
            if isinstance(value, Tensor):
                moved[name] = move(value)
            elif name == "finer" and value is not None:
                moved[name] = tuple(move(rows) for rows in value)
        # the same keys, and they may still be on their way
        return replace(self, **moved, check=False)  # type: ignore[type-var]

    def at_rows(self, rows: Tensor) -> Self:
        """The sites of some rows, as a geometry of its own without levels, maps and inverses."""
        values = {name: getattr(self, name) for name in self.by_row}
        with outside_inference_mode():
            own = {name: v.index_select(0, rows) for name, v in values.items() if v is not None}
        other = {"inverse": None, "finer": None, "count": None}
        return replace(self, **own, **other, check=False)  # type: ignore[type-var]

    def inverses(self) -> Finer:
        """Inverses from the points up to this geometry: what a level keeps as its ``finer``."""
        if self.finer is None or self.inverse is None:
            return None
        return (*self.finer, self.inverse)

    def point_rows(self) -> Tensor:
        """``[P]`` int64 row of every point that the finest level was made from."""
        inverses = self.inverses()
        if inverses is None:
            raise ValueError(
                f"this {type(self).__name__} of tensor stride {self.tensor_stride} has no inverse "
                "that leads back to points: it was not made from points by the floor of their cells"
            )
        rows, *coarser = inverses
        for above in coarser:
            rows = above[rows]
        return rows

    def unique_index(self) -> Tensor:
        """``[N]`` int64, for every row the first point in it, in the order of the input."""
        rows = self.point_rows()
        first = torch.full((self.rows,), len(rows), device=self.device)
        points = torch.arange(len(rows), device=self.device)
        return first.scatter_reduce_(0, rows, points, "amin")

    def level(self, kernel: Kernel, down: bool = True) -> Self | None:
        """The level that `strided` (or `generated`) has made for this kernel, if it has."""
        return self._levels.get(self._level_key(kernel, down))

    def levels(self) -> dict[tuple[Kernel, bool], Self]:
        """Levels made from this geometry so far, by a kernel that makes them and ``down``."""
        return {
            (key if isinstance(key, Kernel) else Kernel.of(key, key), way == "down"): level
            for (way, key), level in self._levels.items()
        }

    def keep_level(self, kernel: Kernel, level: Self, down: bool = True) -> Self:
        """Keep a level; the one that is there already stays."""
        return self._levels.setdefault(self._level_key(kernel, down), level)

    def strided(self, kernel: Kernel, derive: Callable[[Self, Kernel], Self] | None = None) -> Self:
        """Output sites of a convolution with this kernel; the geometry itself at stride 1."""
        if not kernel.is_strided:
            return self
        return self._derived(kernel, derive or type(self)._coarser)

    def _derived(
        self, kernel: Kernel, derive: Callable[[Self, Kernel], Self], down: bool = True
    ) -> Self:
        """The level of a kernel, made at the first request and kept."""
        found = self.level(kernel, down)
        if found is None:
            with outside_inference_mode():
                found = self.keep_level(kernel, derive(self, kernel), down)
        return found

    def generated(self, kernel: Kernel) -> Self:
        """Finer sites that a transposed convolution with this kernel reaches."""
        raise NotImplementedError

    def dilated(self, kernel: Kernel, derive: Callable[[Self, Kernel], Self] | None = None) -> Self:
        """Sites that a convolution of stride 1 with this kernel reaches from those here."""
        raise TypeError(
            f"cells around the sites are those of voxels, got a {type(self).__name__}; "
            "pcnn.voxelize makes voxels of points"
        )

    def _coarser(self, kernel: Kernel) -> Self:
        """The level of `strided`, in torch operations."""
        raise NotImplementedError

    def _level_key(self, kernel: Kernel, down: bool) -> tuple[str, Kernel | Triple]:
        if not down:
            return "up", kernel
        return "down", kernel.stride if kernel.is_strided else kernel

    def kernel_map(self, out: Geometry, kernel: Kernel, engine: BuilderChoice) -> KernelMap:
        """Kernel map of a layer from this geometry (input) to ``out``, built once and kept."""
        if type(out) is not type(self):
            kinds = f"{type(self).__name__} to a {type(out).__name__}"
            raise ValueError(f"no map leads from a {kinds}; give both as voxels or as points")
        builder = engine.builder_of(self.name)
        if builder is None and not self.maps_by_builder:
            raise engine.unserved(self.name)
        found = self.cached_map(out, kernel, builder)
        if found is not None:
            return found
        if builder is None:
            raise engine.unserved(self.name)
        return self.map_to(out, kernel, builder)

    def map_to(self, out: Self, kernel: Kernel, builder: Builder) -> KernelMap:
        """Kernel map from this geometry (input) to ``out``, built once and kept with this one."""
        found = self.cached_map(out, kernel, builder)
        if found is None:
            self._check_new_map(out, kernel)
            with outside_inference_mode():
                built = builder.build(self, out, kernel)
                found = self.add_map(out, kernel, built, builder)
        return found

    def cached_map(
        self, out: Self, kernel: Kernel, builder: Builder | None = None
    ) -> KernelMap | None:
        """The map to ``out`` that is kept with this geometry: the builder's, or one given."""
        maps = self._maps_to(out)  # every layer of every call looks here
        given = maps.get((kernel.key, None))
        if builder is None or not self.maps_by_builder:
            return given
        return maps.get((kernel.key, builder)) or given

    def maps_to(self, out: Self) -> dict[tuple[Kernel, Builder | None], KernelMap]:
        """All maps to ``out`` that are kept with this geometry, by kernel and builder."""
        found: dict[tuple[Kernel, Builder | None], KernelMap] = {}
        for (own, builder), built in self._maps_to(out).items():
            found[Kernel.of(*own), builder] = built
        return found

    def cached_maps(self) -> list[KernelMap]:
        """Maps from this geometry built so far."""
        parts = [self._maps, *self._maps_to_others.values()]
        return [built for maps in parts for built in maps.values()]

    def all_tensors(self) -> Iterator[Tensor]:
        """All tensors of the geometry, of its maps, and of its levels with theirs."""
        yield from self.tensors()
        for built in self.cached_maps():
            for layout in built.edges.layouts.values():
                yield from layout
        for level in self._levels.values():
            yield from level.all_tensors()

    def add_map(
        self, out: Self, kernel: Kernel, built: KernelMap, builder: Builder | None = None
    ) -> KernelMap:
        """Keep a map; the one that is there already stays."""
        made_for, wanted = (built.n_in, built.n_out, built.volume), (self.rows, out.rows)
        if made_for != (*wanted, kernel.volume):
            raise ValueError(
                f"a map of {made_for[2]} slots from {made_for[0]} to {made_for[1]} rows is none of "
                f"{kernel.volume} slots from {wanted[0]} to {wanted[1]} rows"
            )
        built.edges.kernel = built.edges.kernel or kernel
        maps = self._maps if out is self else self._maps_to_others.setdefault(out, {})
        return maps.setdefault((kernel.key, builder if self.maps_by_builder else None), built)

    def _maps_to(self, out: Geometry) -> Maps:
        return self._maps if out is self else self._maps_to_others.get(out, _NONE)

    def _check_new_map(self, out: Self, kernel: Kernel, anywhere: bool = False) -> None:
        """Refuse a map that cannot be built, before a builder is called."""
        # anywhere: a kernel of stride 1 may lie around points of any spacing
        expected = tuple(t * s for t, s in zip(self.tensor_stride, kernel.stride, strict=True))
        if not (anywhere and not kernel.is_strided) and out.tensor_stride != expected:
            raise ValueError(
                f"a kernel of stride {kernel.stride} takes tensor stride {self.tensor_stride} to "
                f"{expected}, but the output sites have {out.tensor_stride}"
            )
        if out.batch_size != self.batch_size:
            raise ValueError(f"input holds {self.batch_size} clouds, the output {out.batch_size}")

    @classmethod
    def _joined(cls, parts: Sequence[Self], shared: str) -> dict[str, Any]:
        """Fields that all kinds join in one way; ``shared`` names the values of `_kind`."""
        if not parts:
            raise ValueError(f"collate needs at least one {cls.kind}")
        first = parts[0]
        for place, part in enumerate(parts):
            if part.batch_size != 1:
                raise ValueError(
                    f"collate joins single clouds, {cls.short} {place} holds {part.batch_size}"
                )
            if part._kind != first._kind:
                raise ValueError(f"{cls.short} {place} has another {shared} than {cls.short} 0")
        if len(parts) > MAX_BATCH:
            raise ValueError(f"a batch holds at most {MAX_BATCH} clouds, got {len(parts)}")
        keys = torch.cat([part.keys + (index << BATCH_SHIFT) for index, part in enumerate(parts)])
        known = [part.inverse for part in parts if part.inverse is not None]
        complete, finest = len(known) == len(parts), all(part.finer == () for part in parts)
        inverse = joined_rows(known, [part.rows for part in parts]) if complete else None
        finer = () if finest else None
        return {"keys": keys, "batch_size": len(parts), "inverse": inverse, "finer": finer}

    @property
    def _kind(self) -> tuple[Any, ...]:
        """The values in which geometries of one batch agree."""
        return (self.tensor_stride,)


def joined_rows(parts: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    """Row numbers of geometries that now lie one after another, ``rows`` long each."""
    starts = [sum(rows[:index]) for index in range(len(rows))]
    return torch.cat([part + start for part, start in zip(parts, starts, strict=True)])


def holding_sites(rows: int, count: Tensor) -> Tensor:
    """Which rows hold a site, the first ``count``: ``[rows]`` bool; nothing waits."""
    return torch.arange(rows, device=count.device) < count
