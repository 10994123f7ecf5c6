"""A planned input in memory of fixed size, which takes one batch after another."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import layout_kind
from pcnn.geometry.padding import MapRoom, Padding, Part
from pcnn.geometry.slot_tiles import TILE_ROWS, TILES
from pcnn.maps.place import place
from pcnn.ops.recipe import Recipe
from pcnn.runtime.buckets import Edges
from pcnn.tensor import SparseTensor

#: Rows of coarser levels, and triplets, that there is room for beyond those of the first batch in
#: proportion to its rows: scans of one sensor differ by less.
MARGIN = 1.15


@dataclass(frozen=True)
class Sizes:
    """Sizes of a planned input, or of the memory that such inputs fit.

    Args:
        rows: of every level, the input's own first.
        triplets: of every map; 0 where they are not listed.
        form: all that has to be equal besides: clouds, channels, dtype, layouts.
    """

    rows: tuple[int, ...]
    triplets: tuple[int, ...]
    form: Hashable

    @classmethod
    def of(cls, recipe: Recipe, x: SparseTensor) -> Sizes:
        """Sizes of an input that was planned for backward.

        Raises:
            ValueError: a map with a layout that does not lie in memory of fixed size.
        """
        grids = levels_of(recipe, x)
        maps = maps_of(recipe, grids)
        form: list[Hashable] = [x.geometry.batch_size, x.channels, x.features.dtype]
        triplets = []
        for built in maps:
            listed = 0
            for (name, flipped), layout in built.edges.layouts.items():
                padding_of(name)
                if name == "pairs":
                    listed = layout[0].shape[0]
                # tiles of a map that is walked in sections are several times as many
                n_out = built.edges.rows[int(not flipped)]
                parts = layout[0].shape[0] // max(1, -(-n_out // TILE_ROWS)) if name in TILES else 0
                form.append((name, flipped, parts))
            triplets.append(listed)
        return cls(tuple(grid.rows for grid in grids), tuple(triplets), tuple(form))

    def room(self, edges: Edges) -> Sizes:
        """Sizes of memory for this input and those like it: one row at least is spare."""
        capacity = edges.above(self.rows[0] + 1)
        growth = MARGIN * capacity / max(1, self.rows[0])
        others = (_tiles(growth * rows + 1) for rows in self.rows[1:])
        listed = (_tiles(growth * number) for number in self.triplets)
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


class FixedInput:
    """Features, geometry and maps of an input in memory of fixed size.

    Spare rows hold no site: features are 0, no triplet leads from or to other rows, the key is the
    sentinel, and `count` of every level says how many rows hold one.

    Args:
        recipe: levels and maps of the network.
        like: a planned input, whose contents are not taken.
        room: sizes; see `Sizes.room`.
    """

    def __init__(self, recipe: Recipe, like: SparseTensor, room: Sizes) -> None:
        self.recipe, self.room = recipe, room
        levels = levels_of(recipe, like)
        device = like.features.device
        #: rows of every level that hold a site, int32 on the device
        self._counts = torch.zeros(len(levels), dtype=torch.int32, device=device)
        counts = self._counts.split(1)
        grids = [_empty(*one) for one in zip(levels, room.rows, counts, strict=True)]
        for number, (parent, direction, kernel) in enumerate(recipe.levels, 1):
            grids[parent].keep_level(kernel, grids[number], direction == "down")
        self._grids = grids
        self._maps: list[_FixedMap] = []
        found = maps_of(recipe, levels)
        for planned, built, listed in zip(recipe.maps, found, room.triplets, strict=True):
            own = _FixedMap(built, grids[planned.source], grids[planned.target], listed)
            source, target = grids[planned.source], grids[planned.target]
            source.add_map(target, planned.kernel, own.map, planned.builder)
            self._maps.append(own)
        features = like.features.new_zeros(room.rows[0], like.channels)
        self.tensor = SparseTensor(features, grids[0])
        self._beside: dict[str, Tensor] = {}

    @property
    def beside(self) -> Mapping[str, Tensor]:
        """What belongs to the rows besides features, by name."""
        return self._beside

    def take(self, x: SparseTensor, beside: Mapping[str, tuple[Tensor, float]]) -> None:
        """Take the contents of a planned input that fits.

        Args:
            x: the input.
            beside: tensors ``[N, ...]`` that belong to its rows, and what spare rows hold, by name.
        """
        levels = levels_of(self.recipe, x)
        rows = [grid.rows for grid in levels]
        # a few bytes that the driver stages at once: the host does not wait for the device
        counts = torch.tensor(rows, dtype=torch.int32)
        self._counts.copy_(counts, non_blocking=True)
        parts = [
            Part(own.keys, grid.keys, grid.key_format.sentinel)
            for own, grid in zip(self._grids, levels, strict=True)
        ]
        for fixed, built in zip(self._maps, maps_of(self.recipe, levels), strict=True):
            parts += fixed.parts(built)
        parts.append(Part(self.tensor.features, x.features, 0))
        for name, (tensor, spare) in beside.items():
            if name not in self._beside:
                self._beside[name] = tensor.new_empty(self.tensor.geometry.rows, *tensor.shape[1:])
            parts.append(Part(self._beside[name], tensor, spare))
        place(parts)


class _FixedMap:
    """A map whose layouts lie in memory of fixed size."""

    def __init__(
        self, like: KernelMap, source: VoxelGrid, target: VoxelGrid, triplets: int
    ) -> None:
        edges, rows = like.edges, (source.rows, target.rows)
        counts = source.count, target.count
        kind = edges.volume, edges.one_per_slot, edges.symmetric
        self.map = KernelMap(EdgeSet(rows, *kind, crowded=edges.crowded, counts=counts))
        # by whether the map is seen backwards
        self._rooms = MapRoom(*rows, triplets), MapRoom(*rows[::-1], triplets)
        made: dict[int, Tensor] = {}  # one tensor may be in several layouts
        for (name, flipped), layout in edges.layouts.items():
            n_out, room = edges.rows[int(not flipped)], self._rooms[int(flipped)]
            own = padding_of(name).make(layout, room, n_out)
            if source.device.type == "cuda":
                own = tuple(map(_unread, layout, own))
            self.map.edges.layouts[name, flipped] = tuple(
                made.setdefault(id(tensor), one) for tensor, one in zip(layout, own, strict=True)
            )

    def parts(self, built: KernelMap) -> list[Part]:
        """What is to be copied of a map that fits; tensors in several layouts once."""
        parts: list[Part] = []
        seen: set[int] = set()
        for (name, flipped), layout in built.edges.layouts.items():
            if not seen.issuperset(map(id, layout)):
                own = self.map.edges.layouts[name, flipped]
                n_out, room = built.edges.rows[int(not flipped)], self._rooms[int(flipped)]
                parts += padding_of(name).parts(own, layout, room, n_out)
                seen.update(map(id, layout))
        return parts


def levels_of(recipe: Recipe, x: SparseTensor) -> list[VoxelGrid]:
    """The levels of a planned input, in the order of the recipe.

    Raises:
        ValueError: an input on native points, or one that was not planned.
    """
    if not isinstance(x.geometry, VoxelGrid):
        raise ValueError(f"memory of fixed size holds voxels, got {x.geometry}")
    grids = [x.geometry]
    for parent, direction, kernel in recipe.levels:
        level = grids[parent].level(kernel, direction == "down")
        if level is None:
            raise ValueError(f"{x.geometry} was not planned; call the network's planner first")
        grids.append(level)
    return grids


def maps_of(recipe: Recipe, grids: Sequence[VoxelGrid]) -> list[KernelMap]:
    """The maps of a planned input, in the order of the recipe; errors as of `levels_of`."""
    return list(_maps_of(recipe, grids))


def _maps_of(recipe: Recipe, grids: Sequence[VoxelGrid]) -> Iterator[KernelMap]:
    for planned in recipe.maps:
        built = planned.found(grids)
        if built is None:
            raise ValueError(f"{grids[0]} was not planned; call the network's planner first")
        yield built


def padding_of(name: str) -> Padding:
    """How a layout lies in memory of fixed size.

    Raises:
        ValueError: it does not.
    """
    padding = layout_kind(name).padding
    if padding is None:
        raise ValueError(
            f"the layout {name!r}, which an engine of this network reads, does not lie in memory "
            "of fixed size; take engine=auto"
        )
    return padding


def _unread(like: Tensor, own: Tensor) -> Tensor:
    """Memory that a graph may read: none for numbers of one batch on the host.

    A graph would hold those of the batch that it was captured with, for all others.
    """
    return own if own is like or own.device.type == "cuda" else own.to("meta")


def _empty(like: VoxelGrid, rows: int, count: Tensor) -> VoxelGrid:
    """A grid of spare rows alone."""
    keys = torch.full((rows,), like.key_format.sentinel, dtype=torch.int64, device=like.device)
    return replace(like, keys=keys, count=count, inverse=None, box=None, finer=None, check=False)


def _tiles(rows: float) -> int:
    """The next multiple of the rows of a tile."""
    return -(-math.ceil(rows) // TILE_ROWS) * TILE_ROWS
