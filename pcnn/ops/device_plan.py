"""A network's levels and maps on a device: few launches, one look at the counts.

Every level is made from the finest sites at once, every map is searched in the same launch as the
others. Then the host waits once, for the numbers of sites (and of triplets, when backward will list
them), so that results are as long as they need to be. Or it never waits: results are as long as a
`Room` says, of which a cloud fills a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.geometry.checks import clouds_of
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import HALF, check_bound
from pcnn.geometry.tile_steps import TILE_ROWS, WHOLE_SLOTS
from pcnn.geometry.voxel_grid import Box
from pcnn.kernels.streams import Beside, read_copy
from pcnn.maps.base import Relation, Sites, TableSearch, Task, map_of_table
from pcnn.maps.cell_bits import CellBits, bitmap_words, fitting_words
from pcnn.maps.disjoint import DisjointMap, DisjointTables, disjoint_maps
from pcnn.maps.levels import (
    EXTENT_WORDS,
    MAX_LEVELS,
    Levels,
    box_of,
    check_overflow,
    fitting_counts,
    pack_cells,
    rows_above,
    scratch_words,
    unique_sites,
)
from pcnn.maps.pairs import list_in_room
from pcnn.maps.radix_sort import MAX_PASSES
from pcnn.maps.windowed import Windowed
from pcnn.ops.recipe import Recipe

#: Levels and maps of a recipe, as far as they are made together.
Grids = list[Any]  # of VoxelGrid, or None
Maps = list[Any]  # of KernelMap, or None

#: Of the report of a plan, behind the extent of the cloud: the passes that sorting the finest sites
#: and the levels took, the words that bitmaps take, and the number of finest sites. Those of all
#: other levels follow, then the triplets of the slots of every map.
HEAD = EXTENT_WORDS + 4
ROOT_PASSES, LEVEL_PASSES, WORDS, FINEST = range(EXTENT_WORDS, HEAD)

#: Work that a plan launches beside its tables, from the order of the cells by row ``[P]`` int32,
#: the row of every cell ``[P]`` int64, and the number of rows.
Meanwhile = Callable[[Tensor, Tensor, int], None]


@dataclass(frozen=True)
class Room:
    """Sizes of a plan that does not know its cloud: those of the tensors that it makes."""

    points: int  # cells that it takes
    rows: tuple[int, ...]  # sites of the finest level, then of every other level that is sorted
    passes: tuple[int, int]  # of the two sorts
    words: int = 0  # of the bitmaps that levels are found in; 0 where they are sorted
    whole: bool = False  # the finest level is found there too
    #: maps, by number in the recipe and side, whose ``fitting_steps`` are in sections
    cut: frozenset[tuple[int, bool]] = frozenset()
    triplets: tuple[int, ...] = ()  # of every map; empty where a plan lists none

    def holds(self, other: Room) -> bool:
        """True if a cloud that takes the other room fits into this one."""
        theirs, own = ((*r.rows, *r.passes, r.words, *r.triplets) for r in (other, self))
        return all(needed <= there for needed, there in zip(theirs, own, strict=True))


@dataclass(frozen=True)
class SearchedMap:
    """A map between levels that are made by floor alone."""

    number: int  # in the recipe
    source: int  # number of the input level
    target: int  # number of the output level
    relation: Relation  # of its sites
    tiles: bool  # the kernel tiles space between the levels, so nothing is searched
    slots: slice  # words of the report: counts of its slots

    @property
    def is_large(self) -> bool:
        """True if its density decides how it is tiled."""
        return self.relation.kernel.volume > WHOLE_SLOTS


@dataclass(frozen=True)
class LaunchedLevels:
    """Sites of all levels; of a cloud that does not fit its room there are none."""

    report: Tensor  # int32 numbers, from the extent on
    sites: list[Sites]  # of the finest level, then of every stride that is sorted
    levels: Levels | None  # all others than the finest, if there are any
    inverse: Tensor | None  # [P] int64 row of every cell; None: of keys, which are the rows
    order: Tensor | None  # [P] int32 cells by row

    def inside(self, place: int) -> int | None:
        """Where ``levels`` hold one of the sites; ``None``: it is the finest, made before."""
        if self.levels is not None and self.levels.whole:
            return place
        return place - 1 if place else None


class DevicePlan:
    """A recipe on sites of one spacing: levels made by floor alone, and maps between them."""

    def __init__(
        self,
        recipe: Recipe,
        spacing: Triple,
        downsampling: str,
        search: TableSearch | None = None,
    ) -> None:
        self.recipe, self.downsampling = recipe, downsampling
        self.search = search or Windowed()
        self.strides = {0: spacing}
        for number, (parent, direction, kernel) in enumerate(recipe.levels, 1):
            floored = downsampling == "floor" and direction == "down" and kernel.is_strided
            if floored and parent in self.strides:
                (x, y, z), (a, b, c) = self.strides[parent], kernel.stride
                self.strides[number] = x * a, y * b, z * c
        #: strides that are sorted, and the place of every level behind the finest and among them
        self.wanted = sorted({s for number, s in self.strides.items() if number})
        self.place = {n: self.wanted.index(s) + 1 if n else 0 for n, s in self.strides.items()}
        self.words = HEAD + len(self.wanted)
        self.maps: list[SearchedMap] = []
        #: the map, if there is one, whose inputs learn the row above them while it is built
        self.above: dict[int, int] = {}
        for number in range(len(recipe.maps)):
            self._add(number)
        #: passes to launch for the two sorts: what the last batch took, as scans of one sensor are
        #: similar. A cloud that takes more is sorted again.
        self.passes = MAX_PASSES, MAX_PASSES
        self.margin = max((self._margin(entry) for entry in self.maps), default=0)

    def _add(self, number: int) -> None:
        """Find a map together with the others, if both its levels are."""
        planned = self.recipe.maps[number]
        kernel, source, target = planned.kernel, planned.source, planned.target
        if source not in self.strides or target not in self.strides:
            return
        spacing, first = self.strides[source], self.words
        steps = tuple(a * b for a, b in zip(spacing, kernel.stride, strict=True))
        tiles = kernel.is_disjoint and bool(target) and steps == self.strides[target]
        relation = Relation(kernel, spacing)
        self.words += kernel.volume
        slots = slice(first, self.words)
        self.maps.append(SearchedMap(number, source, target, relation, tiles, slots))
        if tiles and self.recipe.levels[target - 1][0] == source:
            self.above[target] = number

    def _margin(self, entry: SearchedMap) -> int:
        """How far a map reaches beyond the coordinates of the finest sites."""
        reach = entry.relation.kernel.reach * max(entry.relation.spacing)
        level, coarsest = entry.target, 0
        while level:  # floor moves a coordinate by up to its stride
            coarsest += max(self.strides[level]) - 1
            level = self.recipe.levels[level - 1][0]
        return coarsest + reach

    def exact(
        self,
        given: Tensor | VoxelGrid,
        batch_size: int | None,
        listed: bool,
        bits: bool = True,  # levels of a geometry may be found in bitmaps
    ) -> tuple[Grids, Maps]:
        """Cells in any order, or a geometry, to a geometry with its levels and tables."""
        passes, grid, words = self.passes, None, 0
        if isinstance(given, VoxelGrid):
            grid, words = given, self._words(given) if bits else 0
            made = self._launched(grid.keys, passes, words, grid.batch_size)
        else:
            made = self._launched(given, passes)
        tables = self._tables(made, True) if listed else {}
        known = grid is not None and not (self.wanted or listed)
        # the one host sync of a plan
        numbers = [0] * self.words if known else read_copy(made.report)
        box = None
        if grid is None:
            box = self._check_extent(numbers, batch_size)
        else:
            check_overflow(numbers[EXTENT_WORDS - 1])
            check_bound(grid.bound, self.margin, "plan")
        first, others = (
            new or old for new, old in zip(numbers[ROOT_PASSES:WORDS], passes, strict=True)
        )
        # of those that this call launched: another thread may have changed the plan's since
        self.passes = first, others
        too_few = numbers[WORDS] > words  # sites lie outside of the box that is told of them
        if first > passes[0] or others > passes[1] or too_few:  # or a sort was cut short
            return self.exact(given, batch_size, listed, bits and not too_few)
        rows = numbers[HEAD : HEAD + len(self.wanted)]
        pairs = zip(made.sites, [grid.rows if grid else numbers[FINEST], *rows], strict=True)
        made = replace(made, sites=[Sites(one.keys, many) for one, many in pairs])
        # tables that are not there yet are made of their length
        tables = tables or self._tables(made, False)
        grid = grid or self._grid(made, batch_size or max(1, numbers[0]), box)
        return self._finish(grid, made, tables, numbers if listed else None)

    def in_room(
        self,
        cells: Tensor,  # [room.points, 4] int32, or sorted keys [room.points] int64
        count: Tensor,  # [1] int32 on the device: the first so many are the cloud
        batch_size: int,
        room: Room,
        beside: Beside,
        meanwhile: Meanwhile | None = None,
    ) -> tuple[Grids, Maps, Tensor]:
        """The same without a look at the report; a cloud that does not fit has no sites."""
        sizes = room.passes, room.words, batch_size
        made = self._launched(cells, *sizes, beside, count, room, meanwhile)
        tables = self._tables(made, bool(room.triplets))
        grid = self._grid(made, batch_size, None)
        return *self._finish(grid, made, tables, None, beside, room.triplets), made.report

    def seen(self, numbers: Sequence[int], batch_size: int, listed: bool = False) -> Room:
        """The room that a cloud takes, from its report; 0 behind the first that does not fit."""
        self._check_extent(numbers, batch_size)
        rows = tuple(numbers[FINEST : HEAD + len(self.wanted)])
        passes = numbers[ROOT_PASSES], numbers[LEVEL_PASSES]
        triplets = tuple(sum(numbers[entry.slots]) for entry in self.maps if listed)
        return Room(0, rows, passes, numbers[WORDS], triplets=triplets)

    def room_of(self, grid: VoxelGrid, keyed: bool = False, listed: bool = False) -> Room:
        """The room that a planned geometry takes; keyed: from sorted keys; listed: with pairs."""
        grids = self.recipe.levels_of(grid)
        sizes = {self.place[number]: level.rows for number, level in enumerate(grids)}
        cut, triplets = set(), []
        for number, planned in enumerate(self.recipe.maps):
            built = planned.found(grids)
            if listed and built is not None:
                triplets.append(built.triplets)
            for flipped in (False, True):
                if built is not None and ("fitting_steps", flipped) in built.edges.layouts:
                    tiles = len(built.edges.layouts["fitting_steps", flipped][0])
                    if tiles > -(-built.edges.rows[not flipped] // TILE_ROWS):
                        cut.add((number, flipped))
        words = self._words(grid, (1, 1, 1))
        whole = bool(words) and len(self.wanted) < MAX_LEVELS and not keyed
        if not whole:
            words = self._words(grid)
        points, rows = 0 if grid.inverse is None else len(grid.inverse), sorted(sizes)
        # passes also where a larger box would leave bitmaps out
        many = tuple(sizes[place] for place in rows)
        return Room(points, many, self.passes, words, whole, frozenset(cut), tuple(triplets))

    def _words(self, grid: VoxelGrid, *finest: Triple) -> int:
        """Of the bitmaps that the levels of a geometry take; 0 where they are sorted."""
        words = bitmap_words(grid.extent, grid.batch_size, [*finest, *self.wanted])
        return fitting_words(words, grid.rows)

    def _check_extent(self, numbers: Sequence[int], batch_size: int | None) -> Box:
        """Refuse cells that keys do not hold, or of no cloud; the box of all others."""
        check_overflow(numbers[EXTENT_WORDS - 1])
        clouds_of(0, max(1, numbers[0]) - 1, batch_size)
        box = box_of(numbers)
        check_bound(bound_of(box), self.margin, "plan")
        return box

    def _launched(
        self,
        cells: Tensor,  # [P, 4] int32, or sorted keys [P] int64
        passes: tuple[int, int],
        words: int = 0,  # of bitmaps
        clouds: int = 0,
        beside: Beside | None = None,
        count: Tensor | None = None,
        room: Room | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> LaunchedLevels:
        """Launch what finds the sites of all levels."""
        n, device, strides = len(cells), cells.device, self.wanted
        beside, rooms = beside or Beside(), None
        rows = [n] * (1 + len(strides))
        if room is not None:  # no level has more sites than a finer one
            rows = rooms = [min(own, room.rows[0], n) for own in room.rows]
        bits = CellBits.of(words, device) if words else None
        if bits is not None:
            with beside.branch(bits):
                bits.marks.zero_()
        keys, keyed = cells, cells.ndim == 1
        parts = [self.words, 0 if keyed else scratch_words(1, n)]
        parts += [0 if bits is not None else scratch_words(max(1, len(strides)), rows[0])]
        zeros = torch.zeros(sum(parts), dtype=torch.int32, device=device)
        report, scratch, more = zeros.split_with_sizes(parts)
        extent, found = report[:EXTENT_WORDS], report[FINEST : HEAD + len(strides)]
        if not keyed or strides or room is not None:
            keys, _ = pack_cells(cells, extent, count)

        def by_sort(counts: Tensor | None) -> Levels:
            needed = report[ROOT_PASSES:LEVEL_PASSES]
            sizes = counts, scratch, passes[0], needed, rooms and rooms[:1]
            return unique_sites(keys, extent, [(1, 1, 1)], count, *sizes)

        levels: Levels | None = None
        root: Levels | None = None
        needed = report[WORDS:FINEST]
        if bits is not None and room is not None and room.whole and not keyed:
            assert count is not None
            beside.join()
            with beside.branch(keys, zeros):  # the sort finds the order alone
                root = by_sort(None)
            box = extent, [(1, 1, 1), *strides], clouds
            levels = bits.sites(keys, count, *box, rows, found, needed, whole=True)
            sites = levels.keys[0, : rows[0]]
        else:
            many, sites = found[:1], keys[: rows[0]]
            if not keyed:
                root = by_sort(many)
                sites = root.keys[0, : rows[0]]
            elif count is None:
                many.fill_(n)
            else:
                many.copy_(count)
            if room is not None:
                many = fitting_counts(many, rows[:1])
            if bits is not None:
                beside.join()
                given = extent, strides, clouds, rows[1:], found[1:], needed
                levels = bits.sites(sites, many, *given)
            elif strides:
                sizes = found[1:], more, passes[1], report[LEVEL_PASSES:WORDS]
                given_rooms = rooms and rooms[1:]
                levels = unique_sites(sites, extent, strides, many, *sizes, given_rooms)
        inverse = order = None
        if root is not None:
            order = root.order
            with beside.branch(root):
                inverse = root.inverse[0].to(torch.int64)
                if meanwhile is not None:
                    meanwhile(order, inverse, rows[0])
        counts = list((found if room is None else fitting_counts(found, rows)).split(1))
        every = [sites] if levels is None else [sites, *levels.keys[levels.whole :]]
        made = [Sites(*one, room is not None) for one in zip(every, rows, counts, strict=True)]
        return LaunchedLevels(report, made, levels, inverse, order)

    def _grid(self, made: LaunchedLevels, batch_size: int, box: Box | None) -> VoxelGrid:
        """The finest level, of known box; in a room of none."""
        own = made.sites[0]
        # there coordinates are seen too late to refuse them: as large as they may be
        bound = HALF - 1 - self.margin if box is None else bound_of(box)
        kind = self.strides[0], self.downsampling, made.inverse, box
        grid = VoxelGrid(own.keys[: own.rows], batch_size, bound, *kind, count=own.count)
        return grid if made.order is None else grid.keep_order(made.order)

    def _tables(self, made: LaunchedLevels, listed: bool) -> dict[int, Task | DisjointTables]:
        """Search every map; count triplets into the report if they are listed or decide."""
        results: dict[int, Task | DisjointTables] = {}
        tilings: dict[int, DisjointMap] = {}
        searches: list[Task] = []
        for entry in self.maps:
            finer, coarser = self.place[entry.source], self.place[entry.target]
            source, target, counts = made.sites[finer], made.sites[coarser], None
            # a room says which maps are cut, so nothing asks for the density of large ones
            if listed or (entry.is_large and not target.fixed):
                counts = made.report[entry.slots]
            if not entry.tiles:
                searches.append(Task.of(self.search, source, target, entry.relation, counts))
                results[entry.number] = searches[-1]
                continue
            levels, inside, above = made.levels, made.inside(finer), made.inside(coarser)
            assert levels is not None
            assert above is not None
            tilings[entry.number] = DisjointMap(
                source,
                None if inside is None else levels.first[inside],
                levels.inverse[above],
                entry.relation.kernel.size,
                entry.relation.spacing,
                target.rows,
                counts,
            )
        if searches:
            self.search.search(searches)
        if tilings:
            built = disjoint_maps(list(tilings.values()))
            results.update(zip(tilings, built, strict=True))
        return results

    def _finish(
        self,
        grid: VoxelGrid,
        made: LaunchedLevels,
        tables: dict[int, Task | DisjointTables],
        listed: list[int] | None,  # the report, if triplets are listed
        beside: Beside | None = None,
        triplets: Sequence[int] = (),  # of the maps, that a room lists
    ) -> tuple[Grids, Maps]:
        """Cache levels and maps on the geometry."""
        beside = beside or Beside()
        # a room says which maps are cut
        dense = not made.sites[0].fixed and any(entry.is_large for entry in self.maps)
        counted = made.report.to(torch.int64) if listed or dense or triplets else made.report
        with beside.branch(made.levels):
            above = self._rows_above(made, tables)
        grids: Grids = [grid] + [None] * len(self.recipe.levels)
        for number, (parent, _, kernel) in enumerate(self.recipe.levels, 1):
            finer = grids[parent]
            if number in above and finer is not None:
                own = made.sites[self.place[number]]
                given = self.strides[number], own.keys[: own.rows], above[number], own.count
                grids[number] = finer.level(kernel) or finer.keep_level(
                    kernel, finer.floor_level(*given)
                )
        maps: Maps = [None] * len(self.recipe.maps)
        for entry in self.maps:
            kernel, source, target = entry.relation.kernel, grids[entry.source], grids[entry.target]
            found = tables[entry.number]
            if isinstance(found, Task):
                masks = None if found.masks is None else found.masks[: target.rows]
                built = map_of_table(source, target, kernel, found.table[: target.rows], masks)
            else:
                row_counts = source.count, target.count
                built = found.kernel_map(source.rows, target.rows, row_counts)
            if listed:
                ends = [0, *itertools.accumulate(listed[entry.slots])]
                built.edges.layouts["offsets", False] = (torch.tensor(ends),)
            if listed or triplets or (entry.is_large and dense):
                built.edges.layouts["counts", False] = (counted[entry.slots],)
            if triplets:
                with beside.branch(found):
                    list_in_room(built, triplets[entry.number])
            maps[entry.number] = source.add_map(target, kernel, built)
        return grids, maps

    def _rows_above(
        self, made: LaunchedLevels, tables: dict[int, Task | DisjointTables]
    ) -> dict[int, Tensor]:
        """Row of every level above each row of the finer one it was made from, int64."""
        found: dict[int, Tensor] = {}
        wanted: dict[int, tuple[int | None, int, int]] = {}
        for number, place in self.place.items():
            if not number:
                continue
            parent = self.place[self.recipe.levels[number - 1][0]]
            many, above = made.sites[parent].rows, made.inside(place)
            built = tables[self.above[number]] if number in self.above else None
            if isinstance(built, DisjointTables):
                found[number] = built.inverse[:many]
            else:
                assert above is not None
                wanted[number] = made.inside(parent), above, many
        if made.levels is not None and wanted:
            above_them = rows_above(made.levels, list(wanted.values()))
            found.update(zip(wanted, above_them, strict=True))
        return found


def bound_of(box: Box) -> int:
    """Largest absolute coordinate of a box."""
    return max(0, *box[1], *(-value for value in box[0]))
