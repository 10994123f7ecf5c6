"""Sizes that memory is made for: rounded up to edges, of inputs and of all that a plan makes."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch

from pcnn.geometry import Geometry, KernelMap
from pcnn.geometry.layouts import LAYOUTS, Layout
from pcnn.geometry.steps import STEPS, TILE_ROWS
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
    number, edge = 0, _whole(smallest)
    while edge < size:
        number += 1
        edge = max(edge + TILE_ROWS, _whole(smallest * ratio**number))
    return edge


def _whole(size: float) -> int:
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
        others = (_whole(growth * rows + 1) for rows in self.rows[1:])
        listed = (_whole(growth * number) for number in self.triplets)
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
