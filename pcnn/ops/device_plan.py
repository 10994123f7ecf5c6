"""A network's levels and maps on a device: few launches, one look at the counts.

Every level is made from the finest sites at once, every map is searched in the same launch as the
others, and all row orders come out of one sort. The host waits once, for the numbers of sites (and
of triplets, when backward will list them), so that results are as long as they need to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.geometry.kernel import Triple
from pcnn.geometry.packing import DEFAULT_LAYOUT, KeyLayout
from pcnn.maps.disjoint import DisjointMap, DisjointTables, disjoint_maps
from pcnn.maps.levels import (
    EXTENT_WORDS,
    Levels,
    bound_bits,
    check_overflow,
    extent_of,
    largest_coordinate,
    pack_cells,
    unique_sites,
)
from pcnn.maps.native import NATIVE
from pcnn.maps.windowed import Search, Sites, search_windows
from pcnn.ops.recipe import PlannedMap, Recipe


@dataclass(frozen=True)
class Draft:
    """A batch whose sites are on the device and whose numbers the host has not read yet.

    Args:
        recipe: what the network asks for.
        layout: bit widths of the keys.
        report: int32 words the host will read: extent, number of finest sites, sites of every
            level, triplets of every slot of every map.
        root: finest sites.
        inverse: finest site of every given cell; ``None`` when the sites were given.
        strides: of every level that is made by floor, in level-0 voxels, by its number.
        order: place of such a level among `levels`.
        levels: their sites.
    """

    recipe: Recipe
    layout: KeyLayout
    report: Tensor
    root: Sites
    inverse: Tensor | None
    strides: dict[int, Triple]
    order: dict[int, int]
    levels: Levels | None

    def sites(self, level: int, rows: int | None = None) -> Sites:
        """Sites of a level: its first ``rows``, or as many as its count will say."""
        if level == 0:
            return self.root if rows is None else Sites(self.root.keys[:rows])
        assert self.levels is not None
        place = self.order[level]
        keys = self.levels.keys[place]
        if rows is not None:
            return Sites(keys[:rows])
        return Sites(keys, self.levels.counts[place : place + 1])

    def is_disjoint(self, planned: PlannedMap) -> bool:
        """Whether a map's outputs are the parents of its inputs, and its kernel tiles space."""
        fine, coarse = self.strides[planned.source], self.strides[planned.target]
        steps = tuple(a * b for a, b in zip(fine, planned.kernel.stride, strict=True))
        return planned.kernel.is_disjoint and steps == coarse and planned.target != 0


@dataclass(frozen=True)
class Tables:
    """Results of searches, still as long as their capacity."""

    searched: dict[PlannedMap, Search]
    disjoint: dict[PlannedMap, DisjointTables]
    counts: dict[PlannedMap, Tensor]


def plan_cells(
    recipe: Recipe, cells: Tensor, batch_size: int, listed: bool, sites: str = "floor"
) -> VoxelGrid:
    """Quantised cells in any order to a planned geometry.

    Args:
        recipe: what the network asks for.
        cells: ``[P, 4]`` int32 (batch, x, y, z), duplicates allowed.
        batch_size: number of clouds.
        listed: whether triplets will be listed by slot (backward needs them).
        sites: output sites of strided convolutions.

    Returns:
        The geometry of the unique cells, its levels and tables cached; ``inverse`` ``[P]`` holds
        the row of every cell.

    Raises:
        ValueError: a cell beyond the packed keys; names the axis and its limit.
    """
    layout = DEFAULT_LAYOUT
    report = _report(recipe, cells.device)
    keys, extent = pack_cells(cells, layout, report[:EXTENT_WORDS])
    finest = unique_sites(
        keys, extent, [(1, 1, 1)], layout, counts=report[EXTENT_WORDS : EXTENT_WORDS + 1]
    )
    root = Sites(finest.keys[0], finest.counts)
    strides = _floor_strides(recipe, (1, 1, 1), sites)
    draft = _draft(recipe, layout, report, root, finest.inverse[0], strides, None)
    tables = _search(draft, None) if listed else None
    numbers = read_report(report)
    check_overflow(numbers[EXTENT_WORDS - 1], layout)
    bound = largest_coordinate(numbers, layout)
    rows = numbers[EXTENT_WORDS]
    grid = VoxelGrid(
        finest.keys[0, :rows],
        batch_size,
        bound,
        (1, 1, 1),
        sites,
        finest.inverse[0].to(torch.int64),
        layout,
    )
    _attach(draft, grid, tables, numbers)
    return grid


def plan_grid(recipe: Recipe, grid: VoxelGrid, listed: bool) -> None:
    """Build the levels and tables of a geometry and cache them on it; see `plan_cells`."""
    report = _report(recipe, grid.device)
    strides = _floor_strides(recipe, grid.tensor_stride, grid.sites)
    root = Sites(grid.keys)
    draft = _draft(recipe, grid.layout, report, root, None, strides, grid)
    tables = _search(draft, None) if listed else None
    numbers = read_report(report) if draft.levels is not None or listed else [0] * len(report)
    numbers[EXTENT_WORDS] = grid.rows
    check_overflow(numbers[EXTENT_WORDS - 1], grid.layout)
    _attach(draft, grid, tables, numbers)


def read_report(report: Tensor) -> list[int]:
    """The one host sync of a plan: wait until the device has counted, and read its numbers."""
    if report.device.type != "cuda":
        return [int(value) for value in report.tolist()]
    host = torch.empty(report.shape, dtype=report.dtype, pin_memory=True)
    host.copy_(report, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(report.device))
    done.synchronize()
    return [int(value) for value in host.tolist()]


def _report(recipe: Recipe, device: torch.device) -> Tensor:
    slots = sum(planned.kernel.volume for planned in recipe.maps)
    words = EXTENT_WORDS + 1 + len(recipe.levels) + slots
    return torch.zeros(words, dtype=torch.int32, device=device)


def _floor_strides(recipe: Recipe, spacing: Triple, sites: str) -> dict[int, Triple]:
    """Tensor stride of the root and of every level below it that is made by floor alone."""
    strides = {0: spacing}
    if sites != "floor":
        return strides
    for number, (parent, direction, kernel) in enumerate(recipe.levels, 1):
        if direction == "down" and parent in strides:
            (x, y, z), (a, b, c) = strides[parent], kernel.stride
            strides[number] = x * a, y * b, z * c
    return strides


def _draft(
    recipe: Recipe,
    layout: KeyLayout,
    report: Tensor,
    root: Sites,
    inverse: Tensor | None,
    strides: dict[int, Triple],
    grid: VoxelGrid | None,
) -> Draft:
    """Launch what makes the sites of all levels."""
    wanted = sorted({stride for number, stride in strides.items() if number})
    order = {number: wanted.index(stride) for number, stride in strides.items() if number}
    levels = None
    if wanted:
        extent = report[:EXTENT_WORDS]
        bits = None
        if grid is not None:
            extent_of(grid.keys, layout, extent)
            bits = bound_bits(grid.bound, grid.batch_size, wanted[0])
        start = EXTENT_WORDS + 1
        levels = unique_sites(
            root.keys,
            extent,
            wanted,
            layout,
            root.count,
            bits,
            report[start : start + len(wanted)],
        )
    return Draft(recipe, layout, report, root, inverse, strides, order, levels)


def _search(draft: Draft, rows: Sequence[int] | None) -> Tables:
    """Search every map between levels made by floor.

    Args:
        draft: the sites.
        rows: sites of every level, once the host knows them; ``None`` leaves room for as many as
            the finest level has, and counts triplets for the report.
    """
    place = EXTENT_WORDS + 1 + len(draft.recipe.levels)
    searches: dict[PlannedMap, Search] = {}
    tiling: dict[PlannedMap, DisjointMap] = {}
    counts: dict[PlannedMap, Tensor] = {}
    for planned in draft.recipe.maps:
        volume = planned.kernel.volume
        own = draft.report[place : place + volume] if rows is None else None
        place += volume
        if planned.source not in draft.strides or planned.target not in draft.strides:
            continue
        known = [None if rows is None else rows[n] for n in (planned.source, planned.target)]
        source, target = (
            draft.sites(n, k) for n, k in zip((planned.source, planned.target), known, strict=True)
        )
        if own is not None:
            counts[planned] = own
        spacing = draft.strides[planned.source]
        if draft.is_disjoint(planned):
            assert draft.levels is not None
            first = draft.levels.first[draft.order[planned.source]] if planned.source else None
            parent = draft.levels.inverse[draft.order[planned.target]]
            tiling[planned] = DisjointMap(
                source, first, parent, planned.kernel, spacing, target.rows, own
            )
        else:
            searches[planned] = Search.allocate(source, target, planned.kernel, spacing, own)
    if searches:
        search_windows(list(searches.values()), draft.layout)
    built = disjoint_maps(list(tiling.values()), draft.layout) if tiling else []
    return Tables(searches, dict(zip(tiling, built, strict=True)), counts)


def _attach(draft: Draft, grid: VoxelGrid, tables: Tables | None, numbers: list[int]) -> None:
    """Cut results to their length, and cache levels and maps on the geometry."""
    recipe = draft.recipe
    grids: dict[int, VoxelGrid] = {0: grid}
    rows = [grid.rows] + [0] * len(recipe.levels)
    for number, place in draft.order.items():
        rows[number] = numbers[EXTENT_WORDS + 1 + place]
    for number, (parent, _, kernel) in enumerate(recipe.levels, 1):
        if number in draft.order:
            grids[number] = _level(draft, grids[parent], number, rows[number], kernel)
    if tables is None:
        tables = _search(draft, rows)
    for planned in recipe.maps:
        if planned.source in draft.strides and planned.target in draft.strides:
            source, target = grids[planned.source], grids[planned.target]
            built = _kernel_map(planned, tables, source, target)
            source.map_to(target, planned.kernel, lambda *_, built=built: built)  # type: ignore[misc]
    start = EXTENT_WORDS + 1 + len(recipe.levels)
    for planned in recipe.maps:
        volume = planned.kernel.volume
        if planned in tables.counts:
            source, target = grids[planned.source], grids[planned.target]
            counts = torch.tensor([0, *numbers[start : start + volume]], dtype=torch.int64)
            edges = source.map_to(target, planned.kernel, _never).edges
            edges.layouts["offsets", False] = (counts.cumsum(0),)
        start += volume


def _never(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> KernelMap:
    raise LookupError(f"the map of {kernel} was planned, but is not there")


def _level(draft: Draft, parent: VoxelGrid, number: int, rows: int, kernel: Kernel) -> VoxelGrid:
    key = ("down", kernel.stride)
    if key not in parent._levels:
        stride = draft.strides[number]
        parent._levels[key] = VoxelGrid(
            draft.sites(number, rows).keys,
            parent.batch_size,
            parent.bound + max(stride) - 1,
            stride,
            parent.sites,
            None,
            parent.layout,
        )
    return parent._levels[key]


def _kernel_map(
    planned: PlannedMap, tables: Tables, source: VoxelGrid, target: VoxelGrid
) -> KernelMap:
    counts = tables.counts.get(planned)
    if planned in tables.disjoint:
        return tables.disjoint[planned].kernel_map(source.rows, target.rows, counts)
    search = tables.searched[planned]
    symmetric = planned.kernel.is_symmetric and source is target
    masks = search.masks[: target.rows]
    return KernelMap.from_table(
        search.table[: target.rows], source.rows, masks, counts, symmetric, NATIVE
    )
