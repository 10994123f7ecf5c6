"""Tiles of many maps at once: one sort of rows, one pass over tiles, one that lists their rows."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, mask_words
from pcnn.geometry.slot_tiles import (
    GRAY_BITS,
    MAX_SECTIONS,
    TILE_ROWS,
    is_sparse,
    may_be_cut,
    sections_of,
)
from pcnn.kernels import cuda
from pcnn.kernels.beside import Beside
from pcnn.kernels.pinned import read_copy
from pcnn.maps.radix_sort import RadixSort, passes_of

MAX_TASKS = MAX_SECTIONS
GROUP_TILES = 128
# three blocks a multiprocessor and more: keys wait for one read after another, and a block adds its
# histogram to the others' once
_BLOCKS = 792

_TASK = struct.Struct("PPPPPPPqqqqqqiiiiii0q")
_NO_TASK = b"\0" * _TASK.size
_KEYS = struct.Struct("7Pqq4i0q")
_MASKS = struct.Struct("PPqii0q")
_TILES = struct.Struct("PPPPqi0q")


def row_masks(table: Tensor) -> Tensor:
    """Slot masks ``[N_out, ceil(K / 31)]`` int32 of a neighbour table ``[N_out, K]`` int32."""
    rows, volume = table.shape
    words = mask_words(volume)
    masks = torch.empty(rows, words, dtype=torch.int32, device=table.device)
    arguments = _MASKS.pack(table.data_ptr(), masks.data_ptr(), rows, volume, words)
    cuda.module("tiles.cu", table.device).launch(
        "row_masks", -(-rows // 8), arguments, table.device
    )
    return masks


class Tiled(NamedTuple):
    """A map to be tiled."""

    table: Tensor  # neighbour table [N_out, K] int32
    masks: Tensor  # slot masks [N_out, ceil(K / 31)] int32 of its rows
    sections: int = 1  # number of sections S, at most MAX_SECTIONS
    sites: Tensor | None = None  # [1] int32 rows that hold a site, on the device; None: all of them


def tile_views(
    views: Iterable[tuple[KernelMap, str]], cut: Collection[KernelMap] | None = None
) -> None:
    """Have many maps hold their tiles after one sort.

    Waits for the device once if there are maps whose density decides (``fitting_tiles`` of large
    kernels) and whose number of triplets the host does not know. Left out is what follows from
    another layout without a sort: the tiles of the transpose of a symmetric map; and a map of one
    section gets its ``tiles`` only.
    """
    asked = list(views)
    fitting = [view for view, name in asked if name == "fitting_tiles"]
    names = dict(zip(fitting, _fitting(fitting, cut), strict=True))
    _tile([(view, names[view] if name == "fitting_tiles" else name) for view, name in asked])
    for view, name in names.items():
        view.edges.layouts["fitting_tiles", view.flipped] = view.layout(name)


def _fitting(views: Sequence[KernelMap], cut: Collection[KernelMap] | None) -> list[str]:
    """Which tiles fit each of many maps."""
    if cut is not None:
        return ["section_tiles" if view in cut else "tiles" for view in views]
    large = [view for view in views if may_be_cut(view)]
    open_ones = [view for view in large if view.known_triplets is None]
    sums = [view.layout("counts")[0].sum() for view in open_ones]
    read = dict(zip(open_ones, read_copy(torch.stack(sums)) if sums else [], strict=True))
    known = {view: read[view] if view in read else int(view.offsets[-1]) for view in large}
    sparse = {view for view, triplets in known.items() if is_sparse(view, triplets)}
    return ["section_tiles" if view in sparse else "tiles" for view in views]


def _tile(views: Sequence[tuple[KernelMap, str]]) -> None:
    wanted: dict[tuple[KernelMap, str], int] = {}
    for view, name in sorted(views, key=lambda asked: asked[0].flipped):
        sections = sections_of(view) if name == "section_tiles" else 1
        name = "tiles" if sections == 1 else name
        other = view.transpose()
        mirrored = view.symmetric and (other.has(name) or (other, name) in wanted)
        if not mirrored and not view.has(name):
            wanted[view, name] = sections
    maps = [
        Tiled(view.layout("table")[0], view.layout("masks")[0], sections, view.out_count)
        for (view, _), sections in wanted.items()
    ]
    for (view, name), layout in zip(wanted, tiles_of(maps), strict=True):
        view.edges.layouts[name, view.flipped] = layout


def tiles_of(maps: Sequence[Tiled]) -> list[Layout]:
    """Tiles of several maps (see `pcnn.geometry.slot_tiles`)."""
    batches: list[list[Tiled]] = [[]]
    tasks = 0
    for one in maps:
        if tasks + one.sections > MAX_TASKS:
            batches.append([])
            tasks = 0
        batches[-1].append(one)
        tasks += one.sections
    if not maps:
        return []
    made = [_Batch.of(batch) for batch in batches]
    device = maps[0].table.device
    beside = Beside(device if len(made) > 1 else None)
    with beside.branch():  # side by side: the last batch is often small
        for batch in made[1:]:
            batch.launch()
    made[0].launch()
    beside.join()
    return [layout for batch in made for layout in batch.layouts]


class _Shape(NamedTuple):
    """Sizes of the tiles of one map, worked out once: the host is what small clouds wait for."""

    rows: int
    volume: int
    sections: int
    words: int
    tiles: int
    width: int
    groups: int
    bins: int  # how many tiles of every group, and of the map, have each number of slots
    slots: int  # elements of tile_slots, rounded up so that what follows begins at 16 bytes
    size: int  # elements of all four tensors

    @classmethod
    def of(cls, one: Tiled) -> _Shape:
        rows, volume = one.table.shape
        sections = one.sections
        tiles = sections * -(-rows // TILE_ROWS)
        width = -(-volume // sections)
        groups = -(-tiles // GROUP_TILES)
        bins = (width + 1) * (groups + 1)
        slots = (tiles * width + 3) & ~3
        size = tiles * TILE_ROWS * (1 + width) + slots + ((tiles + 3) & ~3)
        words = mask_words(volume)
        return cls(rows, volume, sections, words, tiles, width, groups, bins, slots, size)


class _Batch(NamedTuple):
    """Maps that are tiled by one sort: their layouts, scratch, and the arguments of the kernels."""

    layouts: list[Layout]
    sort: RadixSort
    scratch: Tensor
    tasks: bytes
    n: int
    keys: bytes
    lists: bytes
    columns: int
    tiles: int
    passes: int

    @classmethod
    def of(cls, maps: Sequence[Tiled]) -> _Batch:
        """Allocate the memory of a batch."""
        device = maps[0].table.device
        shapes = [_Shape.of(one) for one in maps]
        items = tiles = words = bins = size = gray_bits = 0
        for shape in shapes:
            items += shape.rows * shape.sections
            tiles += shape.tiles
            words += shape.tiles * shape.words
            bins += shape.bins
            size += shape.size
            gray_bits = max(gray_bits, min(GRAY_BITS, shape.width))
        columns = max(shape.width for shape in shapes)
        sections = sum(shape.sections for shape in shapes)
        scratch = torch.empty(
            bins + words + tiles + sections * columns, dtype=torch.int32, device=device
        )
        made = torch.empty(size, dtype=torch.int32, device=device)
        sort = RadixSort.of(items, device, dtype=torch.int32)

        tasks, layouts = _tasks(maps, shapes, made)
        packed = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])
        map_bits = (len(tasks) - 1).bit_length()
        counted = scratch.data_ptr()
        places = counted, counted + 4 * (bins + words + tiles)
        sizes = items, bins, columns, len(tasks), gray_bits, map_bits
        keys = _KEYS.pack(*sort.pointers, *places, *sizes)
        kept = counted + 4 * bins
        order = sort.values.data_ptr()
        lists = _TILES.pack(order, counted, kept, kept + 4 * words, tiles, len(tasks))
        passes = passes_of(gray_bits + map_bits)
        n = len(tasks)
        return cls(layouts, sort, scratch, packed, n, keys, lists, columns, tiles, passes)

    def launch(self) -> None:
        """Write the layouts, on the current stream."""
        device = self.scratch.device
        module = cuda.module("tiles.cu", device)
        keys, lists = self.keys + self.tasks, self.lists + self.tasks
        module.launch("column_bits", self.n, keys, device, shared_bytes=4 * self.columns)
        module.launch("mask_keys", max(1, min(_BLOCKS, -(-self.sort.items // 256))), keys, device)
        self.sort.run(self.passes)
        module.launch("tile_masks", -(-self.tiles // 8), lists, device)
        module.launch("tile_lists", self.tiles, lists, device)


def _tasks(
    maps: Sequence[Tiled], shapes: Sequence[_Shape], made: Tensor
) -> tuple[list[bytes], list[Layout]]:
    """Arguments of the kernels for every section, and the parts of one tensor that they write."""
    tasks: list[bytes] = []
    layouts: list[Layout] = []
    out = made.storage_offset()
    base = made.data_ptr() - 4 * out
    item = tile = word = bin_ = 0
    for one, shape in zip(maps, shapes, strict=True):
        rows, volume, sections, words, tiles, width, groups, bins, size, _ = shape
        lists = out + tiles * TILE_ROWS
        slots = lists + tiles * width * TILE_ROWS
        counts = slots + size
        layouts.append(
            (
                made.as_strided((tiles, TILE_ROWS), (TILE_ROWS, 1), out),
                made.as_strided((tiles, width), (width, 1), slots),
                made.as_strided((tiles,), (1,), counts),
                made.as_strided(
                    (tiles, width, TILE_ROWS), (width * TILE_ROWS, TILE_ROWS, 1), lists
                ),
            )
        )
        masks, table = one.masks.data_ptr(), one.table.data_ptr()
        count = 0 if one.sites is None else one.sites.data_ptr()
        places = base + 4 * out, base + 4 * slots, base + 4 * counts, base + 4 * lists, count
        first, own = tile, tiles // sections
        for section in range(sections):
            starts = rows, item, tile, first, word, bin_
            kind = volume, words, section, sections, width, groups
            tasks.append(_TASK.pack(masks, table, *places, *starts, *kind))
            item, tile, word = item + rows, tile + own, word + own * words
        bin_ += bins
        out += shape.size
    return tasks, layouts
