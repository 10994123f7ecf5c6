"""A network's levels and maps on a device: few launches, one look at the counts.

Every level is made from the finest sites at once, every map is searched in the same launch as the
others. The host waits once, for the numbers of sites (and of triplets, when backward will list
them), so that results are as long as they need to be.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, KeyFormat, VoxelGrid
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.steps import WHOLE_SLOTS
from pcnn.geometry.voxel_grid import Box
from pcnn.kernels import pinned
from pcnn.kernels.beside import Beside
from pcnn.maps.base import Relation, Sites, TableSearch, Task, first_rows
from pcnn.maps.device_layouts import map_of_table
from pcnn.maps.levels import (
    EXTENT_WORDS,
    Levels,
    box_of,
    check_overflow,
    extent_of,
    pack_cells,
    rows_above,
    scratch_words,
    unique_sites,
)
from pcnn.maps.radix_sort import MAX_PASSES
from pcnn.maps.tiling import DisjointMap, DisjointTables, disjoint_maps
from pcnn.maps.windowed import Windowed
from pcnn.ops.recipe import Recipe
from pcnn.ops.room_levels import (
    FINEST,
    HEAD,
    LEVEL_PASSES,
    ROOT_PASSES,
    WORDS,
    Meanwhile,
    Room,
    levels_in_room,
)

Maps = list[KernelMap | None]
#: A map as a search leaves it.
Found = Task | DisjointTables


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


def searched_maps(
    recipe: Recipe, strides: Mapping[int, Triple], key_format: KeyFormat, word: int
) -> list[SearchedMap]:
    """The maps of a recipe that a plan finds together."""
    found = []
    for number, planned in enumerate(recipe.maps):
        if planned.source not in strides or planned.target not in strides:
            continue
        fine, coarse = strides[planned.source], strides[planned.target]
        kernel, ends = planned.kernel, (planned.source, planned.target)
        steps = tuple(a * b for a, b in zip(fine, kernel.stride, strict=True))
        tiles = kernel.is_disjoint and bool(planned.target) and steps == coarse
        relation = Relation(kernel, fine, key_format)
        slots = slice(word, word + kernel.volume)
        found.append(SearchedMap(number, *ends, relation, tiles, slots))
        word = slots.stop
    return found


class DevicePlan:
    """A recipe on sites of one spacing: levels made by floor alone, and maps between them."""

    def __init__(
        self,
        recipe: Recipe,
        spacing: Triple,
        downsampling: str,
        key_format: KeyFormat,
        search: TableSearch | None = None,
    ) -> None:
        self.recipe, self.downsampling, self.key_format = recipe, downsampling, key_format
        self.search = search or Windowed()
        self.strides = {0: spacing}
        for number, (parent, direction, kernel) in enumerate(recipe.levels, 1):
            floored = downsampling == "floor" and direction == "down" and kernel.is_strided
            if floored and parent in self.strides:
                (x, y, z), (a, b, c) = self.strides[parent], kernel.stride
                self.strides[number] = x * a, y * b, z * c
        #: strides that are sorted, and the place of every level among them
        self.wanted = sorted({s for number, s in self.strides.items() if number})
        self.place = {n: self.wanted.index(s) for n, s in self.strides.items() if n}
        first = HEAD + len(self.wanted)
        self.maps = searched_maps(recipe, self.strides, key_format, first)
        self.words = self.maps[-1].slots.stop if self.maps else first
        self.has_large = any(entry.is_large for entry in self.maps)
        self.has_disjoint = any(entry.tiles for entry in self.maps)
        #: the map, if there is one, whose inputs learn the row above them while it is built
        self.above: dict[int, int] = {}
        for entry in self.maps:
            level = recipe.levels[entry.target - 1] if entry.target else None
            if entry.tiles and level is not None and level[0] == entry.source:
                self.above[entry.target] = entry.number
        #: passes to launch for the two sorts: what the last batch took, as scans of one sensor are
        #: similar. A cloud that takes more is sorted again.
        self.passes = [MAX_PASSES, MAX_PASSES]
        self.margin = max((self._margin(entry) for entry in self.maps), default=0)

    def _margin(self, entry: SearchedMap) -> int:
        """How far a map reaches beyond the coordinates of the finest sites."""
        reach = self.recipe.maps[entry.number].kernel.reach * max(self.strides[entry.source])
        level, coarsest = entry.target, 0
        while level:  # floor moves a coordinate by up to its stride
            coarsest += max(self.strides[level]) - 1
            level = self.recipe.levels[level - 1][0]
        return coarsest + reach

    def on_cells(
        self, cells: Tensor, batch_size: int | None, listed: bool
    ) -> tuple[list[VoxelGrid | None], Maps]:
        """Quantised cells in any order to a geometry with its levels and tables."""
        n, key_format, passes = cells.shape[0], self.key_format, self.passes
        parts = [self.words, scratch_words(1, n), scratch_words(max(1, len(self.wanted)), n)]
        zeros = torch.zeros(sum(parts), dtype=torch.int32, device=cells.device)
        report, scratch, more = zeros.split_with_sizes(parts)
        extent, needed, _, count = report[:HEAD].split_with_sizes([EXTENT_WORDS, 1, 2, 1])
        keys, _ = pack_cells(cells, key_format, extent)
        finest = unique_sites(
            keys,
            extent,
            [(1, 1, 1)],
            key_format,
            counts=count,
            scratch=scratch,
            passes=passes[0],
            needed=needed,
        )
        root = finest.keys[0]
        levels = self._levels(Sites(root, n, count), report, more, passes[1])
        tables = None
        if listed:
            sites = self._sites(Sites(root, n, count), levels, None)
            tables = self._tables(sites, levels, report, True)
        numbers = read_report(report)
        box = self._check_extent(numbers, batch_size)
        if self._took_more(numbers, passes):
            return self.on_cells(cells, batch_size, listed)
        grid = VoxelGrid(
            root[: numbers[FINEST]],
            batch_size or max(1, numbers[0]),
            bound_of(box),
            self.strides[0],
            self.downsampling,
            finest.inverse[0].to(torch.int64),
            key_format,
            box,
        ).keep_order(finest.order)
        return self._cut(grid, levels, tables, report, numbers)

    def on_grid(self, grid: VoxelGrid, listed: bool) -> tuple[list[VoxelGrid | None], Maps]:
        """Levels and tables of a geometry; see `on_cells`."""
        parts = [self.words, scratch_words(max(1, len(self.wanted)), grid.rows)]
        zeros = torch.zeros(sum(parts), dtype=torch.int32, device=grid.device)
        report, scratch = zeros.split_with_sizes(parts)
        root, passes = Sites(grid.keys, grid.rows), self.passes
        if self.wanted:
            extent_of(grid.keys, self.key_format, report[:EXTENT_WORDS])
        levels = self._levels(root, report, scratch, passes[1])
        tables = None
        if listed:
            tables = self._tables(self._sites(root, levels, None), levels, report, True)
        numbers = read_report(report) if self.wanted or listed else [0] * self.words
        check_overflow(numbers[EXTENT_WORDS - 1], self.key_format)
        if self._took_more(numbers, passes):
            return self.on_grid(grid, listed)
        self.key_format.check_bound(grid.bound, self.margin, "plan")
        return self._cut(grid, levels, tables, report, numbers)

    def in_room(
        self,
        cells: Tensor,  # [room.points, 4] int32, or sorted keys [room.points] int64
        count: Tensor,  # [1] int32 on the device: the first so many are the cloud
        batch_size: int,
        room: Room,
        beside: Beside,
        meanwhile: Meanwhile | None = None,
    ) -> tuple[list[VoxelGrid | None], Maps, Tensor]:
        """As `on_cells` without a look at the counts; a cloud that does not fit has no sites."""
        key_format = self.key_format
        given = cells, count, batch_size, self.wanted, key_format, room, self.words
        made = levels_in_room(*given, beside, meanwhile)
        report, keys, levels, (finest, *rows) = made.report, made.keys, made.levels, made.rows
        counts = made.counts.split(1)
        grid = VoxelGrid(
            keys,
            batch_size,
            # coordinates are seen too late to refuse them here: as large as they may be
            min(key_format.half) - 1 - self.margin,
            self.strides[0],
            self.downsampling,
            made.inverse,
            key_format,
            count=counts[0],
        )
        if made.order is not None:
            grid.keep_order(made.order)
        sites = self._sites(Sites(keys, finest, counts[0], True), levels, rows, counts[1:])
        tables = self._tables(sites, levels, report, False)
        return *self._finish(grid, levels, tables, report, rows, sites, beside=beside), report

    def seen(self, numbers: Sequence[int], batch_size: int) -> Room:
        """The room that a cloud takes, from its report; 0 behind the first that does not fit."""
        self._check_extent(numbers, batch_size)
        rows = tuple(numbers[FINEST : HEAD + len(self.wanted)])
        passes = numbers[ROOT_PASSES], numbers[LEVEL_PASSES]
        return Room(0, rows, passes, numbers[WORDS])

    def _check_extent(self, numbers: Sequence[int], batch_size: int | None) -> Box:
        """Refuse cells that keys do not hold, or of no cloud; the box of all others."""
        check_overflow(numbers[EXTENT_WORDS - 1], self.key_format)
        clouds = numbers[0]
        if batch_size is not None and clouds > batch_size:
            raise ValueError(f"batch index {clouds - 1} does not fit {batch_size} clouds")
        box = box_of(numbers, self.key_format)
        self.key_format.check_bound(bound_of(box), self.margin, "plan")
        return box

    def _took_more(self, numbers: list[int], launched: list[int]) -> bool:
        """True if a sort was cut short; remembers the passes that the sorts take.

        Passes are those that the call launched: another thread may have changed the plan's since.
        """
        took = numbers[ROOT_PASSES:WORDS]
        self.passes = [new or old for new, old in zip(took, launched, strict=True)]
        return any(new > old for new, old in zip(took, launched, strict=True))

    def _levels(self, root: Sites, report: Tensor, scratch: Tensor, passes: int) -> Levels | None:
        """Launch what makes the sites of all levels."""
        if not self.wanted:
            return None
        return unique_sites(
            root.keys,
            report[:EXTENT_WORDS],
            self.wanted,
            self.key_format,
            root.count,
            report[HEAD : HEAD + len(self.wanted)],
            scratch,
            passes,
            report[LEVEL_PASSES:WORDS],
        )

    def _sites(
        self,
        root: Sites,
        levels: Levels | None,
        rows: Sequence[int] | None,
        counts: Sequence[Tensor] | None = None,
    ) -> dict[int, Sites]:
        """Sites of every level; room for as many as the finest has, until ``rows`` are known."""
        # with both rows and counts, rows are those of a `Room`
        found = {0: root}
        if levels is not None:
            keys = levels.keys.unbind()
            if rows is None:
                counts = levels.counts.split(1)
            for level, place in self.place.items():
                many = root.rows if rows is None else rows[place]
                count = None if counts is None else counts[place]
                found[level] = Sites(keys[place + levels.whole], many, count, root.fixed)
        return found

    def _tables(
        self,
        sites: dict[int, Sites],
        levels: Levels | None,
        report: Tensor,
        listed: bool,
    ) -> dict[int, Found]:
        """Search every map; count triplets into the report if they are listed or decide."""
        results: dict[int, Found] = {}
        tilings: dict[int, DisjointMap] = {}
        searches: list[Task] = []
        first: tuple[Tensor, ...] = ()
        inverse: tuple[Tensor, ...] = ()
        if levels is not None and self.has_disjoint:
            first, inverse = levels.first.unbind(), levels.inverse.unbind()
        for entry in self.maps:
            source, target = sites[entry.source], sites[entry.target]
            counts = None
            # a room says which maps are cut, so nothing asks for the density of large ones
            if listed or (entry.is_large and not target.fixed):
                counts = report[entry.slots]
            if not entry.tiles:
                searches.append(Task.of(self.search, source, target, entry.relation, counts))
                results[entry.number] = searches[-1]
            else:
                assert levels is not None
                finer, coarser = (self._place_in(levels, n) for n in (entry.source, entry.target))
                assert coarser is not None
                tilings[entry.number] = DisjointMap(
                    source,
                    None if finer is None else first[finer],
                    inverse[coarser],
                    entry.relation.kernel.size,
                    self.strides[entry.source],
                    target.rows,
                    counts,
                )
        if searches:
            self.search.search(searches)
        if tilings:
            built = disjoint_maps(list(tilings.values()), self.key_format)
            results.update(zip(tilings, built, strict=True))
        return results

    def _cut(
        self,
        grid: VoxelGrid,
        levels: Levels | None,
        tables: dict[int, Found] | None,
        report: Tensor,
        numbers: list[int],
    ) -> tuple[list[VoxelGrid | None], Maps]:
        """Cut results to their length; tables that are not there yet are made of that length."""
        rows = numbers[HEAD : HEAD + len(self.wanted)]
        sites = self._sites(Sites(grid.keys, grid.rows), levels, rows)
        listed = None if tables is None else numbers
        if tables is None:
            tables = self._tables(sites, levels, report, False)
        return self._finish(grid, levels, tables, report, rows, sites, listed)

    def _finish(
        self,
        grid: VoxelGrid,
        levels: Levels | None,
        tables: dict[int, Found],
        report: Tensor,
        rows: Sequence[int],
        sites: dict[int, Sites],
        listed: list[int] | None = None,
        beside: Beside | None = None,
    ) -> tuple[list[VoxelGrid | None], Maps]:
        """Cache levels and maps on the geometry; ``listed``: the report, if triplets are listed."""
        dense = self.has_large and not sites[0].fixed  # a room says which maps are cut
        counted = report.to(torch.int64) if listed or dense else report
        with (beside or Beside()).branch(levels):
            above = self._rows_above(grid.rows, levels, rows, tables)
        grids: list[VoxelGrid | None] = [grid] + [None] * len(self.recipe.levels)
        for number, (parent, _, kernel) in enumerate(self.recipe.levels, 1):
            finer = grids[parent]
            if number in above and finer is not None:
                own = sites[number]
                given = self.strides[number], own.keys[: own.rows], above[number], own.count
                grids[number] = finer.level(kernel) or finer.keep_level(
                    kernel, finer.floor_level(*given)
                )
        maps: Maps = [None] * len(self.recipe.maps)
        for entry in self.maps:
            planned = self.recipe.maps[entry.number]
            source, target = grids[entry.source], grids[entry.target]
            assert source is not None
            assert target is not None
            found = tables[entry.number]
            if isinstance(found, Task):
                written = (found.table,) if found.masks is None else (found.table, found.masks)
                made = first_rows(target.rows, *written)
                built = map_of_table(source, target, planned.kernel, *made)
            else:
                counted_rows = source.count, target.count
                built = found.kernel_map(source.rows, target.rows, row_counts=counted_rows)
            if listed:
                ends = [0, *itertools.accumulate(listed[entry.slots])]
                built.edges.layouts["offsets", False] = (torch.tensor(ends),)
            if listed or (entry.is_large and dense):
                built.edges.layouts["counts", False] = (counted[entry.slots],)
            maps[entry.number] = source.add_map(target, planned.kernel, built)
        return grids, maps

    def _place_in(self, levels: Levels, level: int) -> int | None:
        """Place of a level among those that were made; ``None``: it is the finest, made before."""
        if level:
            return self.place[level] + levels.whole
        return 0 if levels.whole else None

    def _rows_above(
        self,
        finest: int,
        levels: Levels | None,
        rows: Sequence[int],
        tables: dict[int, Found],
    ) -> dict[int, Tensor]:
        """Row of every level above each row of the finer one it was made from, int64."""
        found: dict[int, Tensor] = {}
        if levels is None:
            return found
        wanted: dict[int, tuple[int | None, int, int]] = {}
        for number, place in self.place.items():
            parent = self.recipe.levels[number - 1][0]
            many = rows[self.place[parent]] if parent else finest
            built = tables[self.above[number]] if number in self.above else None
            if isinstance(built, DisjointTables) and built.inverse is not None:
                (found[number],) = first_rows(many, built.inverse)
            else:
                wanted[number] = self._place_in(levels, parent), place + levels.whole, many
        if wanted:
            found.update(zip(wanted, rows_above(levels, list(wanted.values())), strict=True))
        return found


def bound_of(box: Box) -> int:
    """Largest absolute coordinate of a box."""
    return max(0, *box[1], *(-value for value in box[0]))


def read_report(report: Tensor) -> list[int]:
    """The one host sync of a plan: wait until the device has counted, and read its numbers."""
    return pinned.read_copy(report)
