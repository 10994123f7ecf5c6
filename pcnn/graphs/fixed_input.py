"""A planned input in memory of fixed size, which takes one batch after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import Geometry, KernelMap, PointSet, VoxelGrid
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import Layout
from pcnn.geometry.packing import SENTINEL
from pcnn.geometry.padding import MapRoom, Padding, Part
from pcnn.graphs.capture import NoGraph
from pcnn.graphs.sizes import Planned, Sizes, Unfit, held_layouts, padding_of
from pcnn.maps.place import place
from pcnn.ops.recipe import Key, PlannedMap, Recipe
from pcnn.tensor import SparseTensor


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

    def plan(self) -> None:
        """Nothing: the plan of an input is copied."""

    def sites(self, given: Planned, numbers: Sequence[int], *_: Any) -> list[Geometry | None]:
        """The exact levels of an input."""
        return list(given.levels)

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
        rooms = MapRoom(*rows, triplets), MapRoom(*rows[::-1], triplets)
        self._held: list[tuple[Key, Padding, Layout, MapRoom]] = []
        made: dict[int, Tensor] = {}  # one tensor may be in several layouts
        for (name, flipped), layout in held_layouts(planned, like, backward).items():
            padding, room = padding_of(name), rooms[int(flipped)]
            own = padding.make(layout, room, edges.rows[int(not flipped)])
            if source.device.type == "cuda":
                own = tuple(map(_unread, layout, own))
            pairs = zip(layout, own, strict=True)
            own = tuple(made.setdefault(id(tensor), one) for tensor, one in pairs)
            self.map.edges.layouts[name, flipped] = own
            self._held.append(((name, flipped), padding, own, room))
        #: layouts that are copied; all others
        self.names = set(self.map.edges.layouts)

    def parts(self, built: KernelMap) -> list[Part]:
        """Parts to copy of a map that fits; tensors in several layouts once."""
        parts: list[Part] = []
        seen: set[int] = set()
        for key, padding, own, room in self._held:
            layout = built.edges.layouts[key]
            if not seen.issuperset(map(id, layout)):
                parts += padding.parts(own, layout, room, built.edges.rows[int(not key[1])])
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
