"""Steps of many maps at once (``csrc/tile_steps.cu``): one sort of rows, one pass that counts the
steps of tiles, one that lists them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, mask_words
from pcnn.geometry.tile_steps import (
    MAX_SECTIONS,
    TILE_ROWS,
    check_ranges,
    is_sparse,
    may_be_cut,
    sections_of,
    stored_steps,
)
from pcnn.kernels import cuda
from pcnn.kernels.streams import Beside, read_copy
from pcnn.kernels.structs import packer
from pcnn.maps.radix_sort import RadixSort, passes_of

SOURCE = "tile_steps.cu"

#: Sections of tables, and lists, of one sort: keys have 32 bits.
MAX_TABLES, MAX_LISTS = MAX_SECTIONS, 16
GROUP_TILES = 128
# three blocks a multiprocessor and more: keys wait for one read after another, and a block adds its
# histogram to the others' once
_BLOCKS = 792

#: Bits of sort keys, as in ``csrc/tile_steps.cu``: of a table's row, of a list's with its level.
TABLE_BITS, LIST_BITS = 19, 28


def row_masks(table: Tensor) -> Tensor:
    """Slot masks ``[N_out, ceil(K / 31)]`` int32 of a neighbour table ``[N_out, K]`` int32."""
    rows, volume = table.shape
    words = mask_words(volume)
    masks = torch.empty(rows, words, dtype=torch.int32, device=table.device)
    kernels = cuda.module(SOURCE, table.device)
    kernels.launch("row_masks", -(-rows // 8), table, masks, rows, volume, words)
    return masks


def step_views(
    views: Iterable[tuple[KernelMap, str]],
    cut: Collection[KernelMap] | None = None,
    spare: bool = False,
) -> None:
    """Have many maps hold their ``steps`` or ``fitting_steps`` after one sort.

    Spare: rows that hold no site have a place, so that products write 0 there.
    """
    asked = sorted(views, key=lambda one: one[0].flipped)
    sparse = _sparse([view for view, name in asked if name == "fitting_steps"], cut)
    wanted: dict[tuple[KernelMap, str], Source] = {}
    for view, name in asked:
        name = name if view in sparse else "steps"
        other = view.transpose()
        there = other.has(name) or (other, name) in wanted
        if not (view.has(name) or (view.symmetric and view.one_per_slot and there)):
            sections = sections_of(view) if name == "fitting_steps" else 1
            wanted[view, name] = Source.of(view, sections, spare)
    for (view, name), layout in zip(wanted, steps_of(list(wanted.values())), strict=True):
        view.edges.layouts[name, view.flipped] = layout
    for view, name in asked:
        if name == "fitting_steps" and view not in sparse:
            view.edges.layouts[name, view.flipped] = view.layout("steps")


def _sparse(views: Sequence[KernelMap], cut: Collection[KernelMap] | None) -> set[KernelMap]:
    """Those of many maps that are cut into sections."""
    large = [view for view in views if may_be_cut(view)]
    if cut is not None:
        return {view for view in large if view in cut}
    open_ones = [view for view in large if view.known_triplets is None]
    sums = [view.layout("counts")[0].sum() for view in open_ones]
    read = dict(zip(open_ones, read_copy(torch.stack(sums)) if sums else [], strict=True))
    known = {view: read[view] if view in read else int(view.offsets[-1]) for view in large}
    return {view for view, triplets in known.items() if is_sparse(view, triplets)}


class Source(NamedTuple):
    """A map whose steps are to be listed, and their sizes."""

    inputs: Tensor  # neighbour table [N_out, K]; of several inputs a slot [T] by row; int32
    filled: Tensor  # its slot masks [N_out, words]; of several [T] slots by row; int32
    row_offsets: Tensor | None  # of several, [N_out + 1] int64
    rows: int
    volume: int
    sections: int
    sites: Tensor | None  # [1] int32 rows that hold a site, on the device; None: all of them
    tiles: int  # of all sections
    width: int  # most slots of a section
    steps: int  # that there is room for

    @classmethod
    def of(cls, view: KernelMap, sections: int, spare: bool = False) -> Source:
        """Any map."""
        if view.one_per_slot:
            (table,), (masks,) = view.layout("table"), view.layout("masks")
            (rows, volume), width = table.shape, -(-view.volume // sections)
            tiles = sections * -(-rows // TILE_ROWS)
            sites = None if spare else view.edges.counts[int(not view.flipped)]
            sizes = rows, volume, sections, sites, tiles, width, tiles * width
            return cls(table, masks, None, *sizes)
        (in_index, slots, row_offsets), rows = view.layout("rows_csr"), view.n_out
        tiles, triplets, volume = -(-rows // TILE_ROWS), in_index.shape[0], view.volume
        check_ranges(rows, volume, triplets)
        sizes = rows, volume, 1, None, tiles, volume, stored_steps(triplets, tiles, volume)
        return cls(in_index, slots, row_offsets, *sizes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Integers of the tensors that are made: each begins at a multiple of 16 bytes."""
        tiles, steps = -(-self.tiles // 4) * 4, -(-self.steps // 4) * 4
        several = self.row_offsets is not None
        ranges = self.tiles * (self.volume + 1) * TILE_ROWS if several else 0
        return self.tiles * TILE_ROWS, tiles, tiles, steps, self.steps * TILE_ROWS, ranges


def steps_of(maps: Sequence[Source]) -> list[Layout]:
    """Steps of several maps of one device; nothing waits."""
    if len(maps) == 1:  # a lone map: no batches
        alone = _Batch.of(maps)
        alone.launch()
        return alone.layouts
    made: dict[int, Layout] = {}
    batches: list[list[int]] = []
    for several, most in ((False, MAX_TABLES), (True, MAX_LISTS)):
        tasks = most
        for number, one in enumerate(maps):
            if (one.row_offsets is not None) != several:
                continue
            tasks += one.sections
            if tasks > most:
                batches.append([])
                tasks = one.sections
            batches[-1].append(number)
    if not maps:
        return []
    batches.sort(key=len)  # side by side: what comes beside the last one is often small
    beside = Beside(maps[0].inputs.device if len(batches) > 1 else None)
    ready = [_Batch.of([maps[number] for number in batch]) for batch in batches]
    with beside.branch():
        for batch in ready[:-1]:
            batch.launch()
    ready[-1].launch()
    beside.join()
    for batch, numbers in zip(ready, batches, strict=True):
        made.update(zip(numbers, batch.layouts, strict=True))
    return [made[number] for number in range(len(maps))]


class _Batch(NamedTuple):
    """Maps of one kind and sort: their layouts, scratch, and the arguments of the kernels."""

    kind: str
    layouts: list[Layout]
    sort: RadixSort
    scratch: Tensor
    arguments: bytes
    sizes: tuple[int, int, int, int]  # tasks, tiles, columns and passes

    @classmethod
    def of(cls, maps: Sequence[Source]) -> _Batch:
        """Allocate the memory of a batch."""
        device, several = maps[0].inputs.device, maps[0].row_offsets is not None
        items = sum(one.rows * one.sections for one in maps)
        tiles, tasks = sum(one.tiles for one in maps), sum(one.sections for one in maps)
        columns = max((2 if several else 1) * one.width for one in maps)
        # of lists the largest fan-in of every tile and slot, of tables the slots of every tile
        words = sum(m.tiles * (m.volume if several else mask_words(m.volume)) for m in maps)
        bins = 0 if several else sum((m.width + 1) * (1 - (-m.tiles // GROUP_TILES)) for m in maps)
        sizes = [bins, words, tiles, tasks * columns]
        scratch = torch.empty(sum(sizes), dtype=torch.int32, device=device)
        sort = RadixSort.of(items, device, dtype=torch.int32)
        bits = LIST_BITS if several else max(min(TABLE_BITS, one.width) for one in maps)
        places = [scratch.data_ptr() + 4 * at for at in itertools.accumulate([0, *sizes[:-1]])]
        layouts, packed = _tasks(maps, places[1])
        passes = passes_of(bits + (tasks - 1).bit_length())
        arguments = packer(SOURCE, "StepsArguments")(
            packer(SOURCE, "KeyBuffers")(*sort.buffers.values()),
            *places,
            *(items, bins, tiles, columns, tasks, bits, passes),
            b"".join(packed),
        )
        kind, numbers = "list" if several else "table", (tasks, tiles, columns, passes)
        return cls(kind, layouts, sort, scratch, arguments, numbers)

    def launch(self) -> None:
        """Write the layouts, on the current stream."""
        kernels = cuda.module(SOURCE, self.scratch.device)
        tasks, tiles, columns, passes = self.sizes

        def run(name: str, blocks: int, shared: int = 0) -> None:
            kernels.run(f"{self.kind}_{name}", blocks, self.arguments, 4 * shared)

        run("bits", tasks, columns)
        run("keys", max(1, min(_BLOCKS, -(-self.sort.items // 256))))
        self.sort.run(passes)
        if self.kind == "table":  # a warp a tile
            run("counts", -(-tiles // 8))
        else:
            run("counts", tiles, columns // 2)
        run("steps", tiles)


def _tasks(maps: Sequence[Source], scratch: int) -> tuple[list[Layout], list[bytes]]:
    """The parts of one tensor that kernels write, and their arguments for every section."""
    sizes = [one.sizes for one in maps]
    made = torch.empty(sum(map(sum, sizes)), dtype=torch.int32, device=maps[0].inputs.device)
    pack = packer(SOURCE, "StepTask")
    layouts: list[Layout] = []
    packed: list[bytes] = []
    item = tile = word = bin_ = 0
    at = int(made.storage_offset())
    base = made.data_ptr() - 4 * at
    for one, own in zip(maps, sizes, strict=True):
        inputs, filled, row_offsets, rows, volume, sections, sites, tiles, width, steps = one
        out, begin, end, slots, listed, starts = itertools.accumulate(own[:-1], initial=at)
        layout: Layout = (
            made.as_strided((tiles, TILE_ROWS), (TILE_ROWS, 1), out),
            made.as_strided((tiles,), (1,), begin),
            made.as_strided((tiles,), (1,), end),
            made.as_strided((steps,), (1,), slots),
            made.as_strided((steps, TILE_ROWS), (TILE_ROWS, 1), listed),
        )
        offsets, fullest, stored, words = 0, 0, 0, mask_words(volume)
        if row_offsets is not None:
            shape = tiles, volume + 1, TILE_ROWS
            ranges = made.as_strided(shape, (shape[1] * TILE_ROWS, TILE_ROWS, 1), starts)
            layout = *layout, ranges, inputs
            offsets, fullest = row_offsets.data_ptr(), scratch + 4 * word
            stored, words = steps, volume
        layouts.append(layout)
        count = 0 if sites is None else sites.data_ptr()
        pointers = [inputs.data_ptr(), filled.data_ptr(), offsets, count]
        pointers += [base + 4 * place for place in (out, begin, end, slots, listed, starts)]
        first, each, groups = tile, tiles // sections, -(-tiles // GROUP_TILES)
        for section in range(sections):
            places = rows, item, tile, first, word, bin_, stored
            kind = volume, words, section, sections, width, groups
            packed.append(pack(*pointers, fullest, *places, *kind))
            item, tile, word = item + rows, tile + each, word + each * words
        bin_ += 0 if offsets else (width + 1) * (groups + 1)
        at += sum(own)
    return layouts, packed
