"""A planned input in memory of fixed size, which takes one batch after another, and its sizes.

Room that a map does not fill is spare: no product reads it, or it reads zeros and adds them to
spare rows. A spare row of an output is written as 0 where its layout lists every row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Geometry, KernelMap, PointSet, VoxelGrid
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import LAYOUTS, Layout
from pcnn.geometry.packing import SENTINEL
from pcnn.geometry.tile_steps import BEYOND, STEPS, TILE_ROWS, stored_steps
from pcnn.graphs.capture import NoGraph
from pcnn.maps.place import Part, place
from pcnn.ops.recipe import Key, PlannedMap, Recipe
from pcnn.tensor import SparseTensor

#: A part of an input has so many times fewer rows.
FEWER = 4
#: How many times the sites of the cloud that asks for a bucket it is made for.
HEADROOM = 1.1


@dataclass(frozen=True)
class Edges:
    """Edges ``e_k = smallest ratio^k``, rounded up to multiples of `TILE_ROWS`."""

    smallest: int = 1024  # the first edge
    ratio: float = 1.25  # between neighbours, above 1 and at most 1.3

    def __post_init__(self) -> None:
        if self.smallest < 1:
            raise ValueError(f"the smallest bucket must hold a point, got {self.smallest}")
        if not 1 < self.ratio <= 1.3:
            raise ValueError(f"buckets must be 1 to 1.3 apart, got ratio={self.ratio}")

    def above(self, size: int) -> int:
        """The edge of a size."""
        return _edge_above(self.smallest, self.ratio, size)


@functools.lru_cache(maxsize=4096)
def _edge_above(smallest: int, ratio: float, size: int) -> int:
    number, edge = 0, in_tiles(smallest)
    while edge < size:
        number += 1
        edge = max(edge + TILE_ROWS, in_tiles(smallest * ratio**number))
    return edge


def in_tiles(size: float) -> int:
    """The next multiple of the rows of a tile."""
    return -int(-size // TILE_ROWS) * TILE_ROWS


#: Rows of coarser levels, and triplets, that there is room for beyond those of the first batch in
#: proportion to its rows: scans of one sensor differ by less.
MARGIN = 1.15

#: Layouts whose first tensor has an entry for every triplet.
LISTS = ("pairs", "rows_csr")
#: Layouts that lie in memory of fixed size.
FIXED = ("counts", "offsets", *LISTS, *STEPS)


class NoFixedSize(ValueError):
    """A map with a layout that does not lie in memory of fixed size; the message says why."""


class Unfit(Exception):
    """An input with more sites than there is room for."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a planned input, or of the memory that such inputs fit."""

    rows: tuple[int, ...]  # of every level, the input's own first
    triplets: tuple[int, ...]  # of every map; 0 where they are not listed
    form: Hashable  # all that has to be equal besides: clouds

    def room(self, edges: Edges) -> Sizes:
        """Sizes of memory for this input and those like it: one row at least is spare."""
        capacity = edges.above(self.rows[0] + 1)
        growth = MARGIN * capacity / max(1, self.rows[0])
        others = (in_tiles(growth * rows + 1) for rows in self.rows[1:])
        listed = (in_tiles(growth * number) for number in self.triplets)
        return replace(self, rows=(capacity, *others), triplets=tuple(listed))

    def fits(self, room: Sizes) -> bool:
        """True if an input of these sizes has its place in memory of those, with spare rows."""
        rows = all(own < most for own, most in zip(self.rows, room.rows, strict=True))
        listed = zip(self.triplets, room.triplets, strict=True)
        return rows and all(own <= most for own, most in listed) and self.form == room.form

    def joined(self, other: Sizes) -> Sizes:
        """Sizes of memory that holds what fits the one or the other; forms are equal."""
        rows, triplets = map(max, self.rows, other.rows), map(max, self.triplets, other.triplets)
        return replace(self, rows=tuple(rows), triplets=tuple(triplets))


@dataclass(frozen=True, eq=False)
class Planned:
    """An input that was planned, with its levels and maps in the order of the recipe."""

    x: SparseTensor
    levels: list[Geometry]
    maps: list[KernelMap]
    sizes: Sizes

    @classmethod
    def of(cls, recipe: Recipe, x: SparseTensor, backward: bool = True) -> Planned:
        """Levels, maps and sizes of an input that was planned for backward, or without it."""
        levels, at = levels_of(recipe, x), x.geometry
        maps = [built for one in recipe.maps if (built := one.found(levels)) is not None]
        if len(maps) < len(recipe.maps):
            raise ValueError(f"{at} was not planned; call the network's planner first")
        form: list[Hashable] = [at.batch_size, at.plan_kind, x.channels, x.features.dtype]
        triplets = []
        for planned, built in zip(recipe.maps, maps, strict=True):
            listed = 0
            for (name, flipped), layout in held_layouts(planned, built, backward).items():
                if name not in FIXED:
                    raise NoFixedSize(
                        f"the layout {name!r}, which an engine of this network reads, does not lie "
                        "in memory of fixed size; take engine=auto"
                    )
                if name in LISTS:
                    listed = layout[0].shape[0]
                elif name in STEPS and len(layout) > 5:
                    listed = layout[-1].shape[0]
                # tiles of a map that is walked in sections are several times as many
                n_out = built.edges.rows[int(not flipped)]
                parts = layout[0].shape[0] // max(1, -(-n_out // TILE_ROWS)) if name in STEPS else 0
                form.append((name, flipped, parts, len(layout)))
            triplets.append(listed)
        sizes = Sizes(tuple(level.rows for level in levels), tuple(triplets), tuple(form))
        return cls(x, levels, maps, sizes)


def levels_of(recipe: Recipe, x: SparseTensor) -> list[Geometry]:
    """The levels of a planned input, in the order of the recipe."""
    levels = recipe.levels_of(x.geometry)
    if any(level is None for level in levels):
        raise ValueError(f"{x.geometry} was not planned; call the network's planner first")
    return levels


def held_layouts(planned: PlannedMap, built: KernelMap, backward: bool) -> dict[Key, Layout]:
    """Layouts that layers read of a map; all that there are where a plan made others."""
    # device kernels keep what they derive layouts from there too; no product reads that
    kept = built.edges.layouts.items()
    there = {key: layout for key, layout in kept if key[0].partition(":")[0] in LAYOUTS}
    wanted = planned.layouts(backward)
    held = set(wanted) if there.keys() >= set(wanted) else set(there)
    return {key: layout for key, layout in there.items() if key in held}


def part_of(x: SparseTensor) -> SparseTensor:
    """The first rows of an input, so few that most rows of its memory are spare."""
    rows = torch.arange(-(-x.geometry.rows // FEWER), device=x.device)
    return SparseTensor(x.features[rows], x.geometry.at_rows(rows))


class FixedInput:
    """Features, geometry and maps of an input in memory of fixed size."""

    report: Tensor | None = None  # of what a plan in a graph saw: here there is none

    def __init__(self, recipe: Recipe, like: Planned, room: Sizes, backward: bool = True) -> None:
        self.recipe, self.room = recipe, room
        levels, features = like.levels, like.x.features
        device = features.device
        #: rows of every level that hold a site, int32 on the device
        self._counts = torch.zeros(len(levels), dtype=torch.int32, device=device)
        counts = self._counts.split(1)
        frames = {name: one.clone() for name, one in _frames_of(levels[0]).items()}
        self._levels = [_empty(*one, frames) for one in zip(levels, room.rows, counts, strict=True)]
        for number, (parent, direction, kernel) in enumerate(recipe.levels, 1):
            self._levels[parent].keep_level(kernel, self._levels[number], direction == "down")
        self._maps: list[_FixedMap] = []
        for planned, built, listed in zip(recipe.maps, like.maps, room.triplets, strict=True):
            source, target = self._levels[planned.source], self._levels[planned.target]
            own = _FixedMap(planned, built, (source, target), listed, backward)
            source.add_map(target, planned.kernel, own.map, planned.builder)
            self._maps.append(own)
        memory = features.new_zeros(room.rows[0], features.shape[1])
        self.tensor = SparseTensor(memory, self._levels[0])

    @property
    def levels(self) -> list[Geometry]:
        """The geometry of the tensor and its levels, in the order of the recipe."""
        return list(self._levels)

    def sites(self, given: Planned, *_: Any) -> Callable[..., list[Geometry | None]]:
        """The exact levels of an input."""
        return lambda *_: list(given.levels)

    def rows(self, given: Planned, *_: Any) -> tuple[int, ...]:
        """Rows of all levels of an input."""
        return given.sizes.rows

    def check(self) -> None:
        """NoGraph where a layer has derived a layout: it would be that of one batch for ever."""
        for own in self._maps:
            layouts = own.map.edges.layouts
            copied = {one.data_ptr() for key in own.names for one in layouts[key]}
            for name, flipped in layouts.keys() - own.names:  # some are views of what is copied
                if not copied.issuperset(one.data_ptr() for one in layouts[name, flipped]):
                    raise NoGraph(f"a layer reads {name!r}, which no plan makes")

    def take(self, given: Planned) -> None:
        """Take the contents of a planned input; `Unfit` where it has no place."""
        if not given.sizes.fits(self.room):
            raise Unfit
        rows = [level.rows for level in given.levels]
        # a few bytes that the driver stages at once: the host does not wait for the device
        counts = torch.tensor(rows, dtype=torch.int32)
        self._counts.copy_(counts, non_blocking=True)
        parts = [
            Part(getattr(self._levels[0], name), tensor)
            for name, tensor in _frames_of(given.levels[0]).items()
        ]
        for own, level in zip(self._levels, given.levels, strict=True):
            parts += _places(own, level)
        for fixed, built in zip(self._maps, given.maps, strict=True):
            parts += fixed.parts(built)
        parts.append(Part(self.tensor.features, given.x.features, 0))
        place(parts)


class MapRoom(NamedTuple):
    """Sizes of a map's tensors, seen from one side."""

    n_in: int  # input rows
    n_out: int  # output rows, a multiple of TILE_ROWS; at least one row of either side is spare
    triplets: int  # of the map


class Padding(NamedTuple):
    """How a tensor of a layout lies in memory of fixed size."""

    length: int | None  # None: as many numbers as there are
    spare: int | None = None  # as the following, of `Part`
    first: int | None = None


def paddings(name: str, layout: Layout, room: MapRoom, n_out: int) -> list[Padding]:
    """Of every tensor of a layout of so many output rows."""
    if name in ("counts", "offsets"):
        return [Padding(None)]
    listed = Padding(room.triplets)
    if name == "pairs":  # those beyond the counts of all slots lead from a spare row to another
        return [listed._replace(spare=rows - 1) for rows in room[:2]] + [Padding(None)]
    if name == "rows_csr":  # the range of a spare row is empty
        return [listed, listed, Padding(room.n_out + 1, layout[0].shape[0])]
    assert name in STEPS
    there = -(-n_out // TILE_ROWS)
    filled = layout[0].shape[0]  # tiles of all sections
    tiles = filled // max(1, there) * -(-room.n_out // TILE_ROWS)
    if len(layout) > 5:
        steps = stored_steps(room.triplets, tiles, layout[5].shape[1] - 1)
    else:
        steps = tiles * -(-layout[3].shape[0] // max(1, filled))
    # spare tiles take no step; of a map in one section they hold the spare rows
    out = Padding(tiles, -1)
    if filled == there:
        out = Padding(tiles, first=max(0, filled - 1) * TILE_ROWS)
    own = Padding(steps), Padding(steps), Padding(tiles, 0), listed
    return [out, Padding(tiles, BEYOND), Padding(tiles, BEYOND), *own][: len(layout)]


def memory_of(layout: Layout, padded: Sequence[Padding]) -> Layout:
    """Memory for layouts like this one."""
    return tuple(
        one.clone() if length is None else one.new_zeros(length, *one.shape[1:])
        for one, (length, *_) in zip(layout, padded, strict=True)
    )


def parts_of(own: Layout, layout: Layout, padded: Sequence[Padding]) -> list[Part]:
    """What memory takes of a layout."""
    pairs = zip(own, layout, padded, strict=True)
    return [Part(memory, tensor, *spare) for memory, tensor, (_, *spare) in pairs]


class _FixedMap:
    """A map whose layouts lie in memory of fixed size."""

    def __init__(
        self,
        planned: PlannedMap,
        like: KernelMap,
        sides: tuple[Geometry, Geometry],
        triplets: int,
        backward: bool,
    ) -> None:
        (source, target), edges = sides, like.edges
        rows, counts = (source.rows, target.rows), (source.count, target.count)
        kind = edges.volume, edges.one_per_slot, edges.symmetric
        self.map = KernelMap(EdgeSet(rows, *kind, counts=counts, kernel=edges.kernel))
        # by whether the map is seen backwards
        self._rooms = MapRoom(*rows, triplets), MapRoom(*rows[::-1], triplets)
        made: dict[int, Tensor] = {}  # one tensor may be in several layouts
        for key, layout in held_layouts(planned, like, backward).items():
            own = memory_of(layout, self._padded(key, like))
            if source.device.type == "cuda":
                own = tuple(map(_unread, layout, own))
            pairs = zip(layout, own, strict=True)
            own = tuple(made.setdefault(id(tensor), one) for tensor, one in pairs)
            self.map.edges.layouts[key] = own
        #: layouts that are copied; all others
        self.names = set(self.map.edges.layouts)

    def _padded(self, key: Key, built: KernelMap) -> list[Padding]:
        name, flipped = key
        rows = built.edges.rows[int(not flipped)]
        return paddings(name, built.edges.layouts[key], self._rooms[int(flipped)], rows)

    def parts(self, built: KernelMap) -> list[Part]:
        """Parts to copy of a map that fits; tensors in several layouts once."""
        parts: list[Part] = []
        seen: set[int] = set()
        for key in self.names:
            layout = built.edges.layouts[key]
            if not seen.issuperset(map(id, layout)):
                own = self.map.edges.layouts[key]
                parts += parts_of(own, layout, self._padded(key, built))
                seen.update(map(id, layout))
        return parts


def _unread(like: Tensor, own: Tensor) -> Tensor:
    """Memory that a graph may read: none for numbers of one batch on the host."""
    # a graph would hold those of the batch that it was captured with, for all others
    return own if own is like or own.device.type == "cuda" else own.to("meta")


def _frames_of(geometry: Geometry) -> dict[str, Tensor]:
    """Tensors that native points of all levels are relative to."""
    if not isinstance(geometry, PointSet):
        return {}
    return {"origins": geometry.origins, "corners": geometry.corners}


def _empty(like: Geometry, rows: int, count: Tensor, frames: dict[str, Any]) -> Geometry:
    """A geometry of spare rows alone."""
    keys = torch.full((rows,), SENTINEL, dtype=torch.int64, device=like.device)
    sites: dict[str, Any] = {"keys": keys, "count": count, "inverse": None, "finer": None}
    if isinstance(like, PointSet):
        points = like.points.new_zeros(rows, 3)
        return replace(like, points=points, chosen=None, **frames, **sites, check=False)
    assert isinstance(like, VoxelGrid)
    return replace(like, box=None, **sites, check=False)


def _places(own: Geometry, level: Geometry) -> list[Part]:
    """Parts to copy of the sites of a level."""
    parts = [Part(own.keys, level.keys, SENTINEL)]
    if isinstance(own, PointSet) and isinstance(level, PointSet):
        parts.append(Part(own.points, level.points, 0))
    return parts
