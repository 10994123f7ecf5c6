"""Tiles of many maps at once: one sort of rows, one pass over tiles, one that lists their rows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import Layout, mask_words
from pcnn.geometry.slot_tiles import GRAY_BITS, MAX_SECTIONS, TILE_ROWS, sections_of
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import RadixSort, passes_of

MAX_TASKS = MAX_SECTIONS
GROUP_TILES = 128
_BLOCKS = 264

_TASK = struct.Struct("PPPPPPqqqqqqiiiiii0q")
_NO_TASK = b"\0" * _TASK.size
_KEYS = struct.Struct("PPPPPPqqiii0q")
_MASKS = struct.Struct("PPqii0q")
_TILES = struct.Struct("PPPPqi0q")

#: Names of the layouts made here.
TILED = ("tiles", "section_tiles")


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
    """A map to be tiled.

    Args:
        table: neighbour table ``[N_out, K]`` int32.
        masks: slot masks ``[N_out, ceil(K / 31)]`` int32 of its rows.
        sections: number of sections S, at most `MAX_SECTIONS`; 1 for one row order of all slots.
    """

    table: Tensor
    masks: Tensor
    sections: int = 1


def tile_views(views: Iterable[tuple[KernelMap, str]]) -> None:
    """Have many maps hold their ``tiles`` or ``section_tiles`` after one sort.

    Left out is what follows from another layout without a sort: the tiles of the transpose of a
    symmetric map; and a map of one section gets its ``tiles`` only.

    Args:
        views: maps, and which of the two layouts each shall hold.
    """
    wanted: dict[tuple[KernelMap, str], int] = {}
    for view, name in sorted(views, key=lambda asked: asked[0].flipped):
        sections = sections_of(view) if name == "section_tiles" else 1
        name = "tiles" if sections == 1 else name
        other = view.transpose()
        mirrored = view.symmetric and (other.has(name) or (other, name) in wanted)
        if not mirrored and not view.has(name):
            wanted[view, name] = sections
    maps = [Tiled(v.layout("table")[0], v.layout("masks")[0], s) for (v, _), s in wanted.items()]
    for (view, name), layout in zip(wanted, tiles_of(maps), strict=True):
        view.edges.layouts[name, view.flipped] = layout


def tiles_of(maps: Sequence[Tiled]) -> list[Layout]:
    """Tiles of several maps (see `pcnn.geometry.slot_tiles`).

    Args:
        maps: what to tile, all on one device.
    """
    layouts: list[Layout] = []
    batch: list[Tiled] = []
    tasks = 0
    for one in maps:
        if tasks + one.sections > MAX_TASKS:
            layouts += _tiles(batch)
            batch, tasks = [], 0
        batch.append(one)
        tasks += one.sections
    return layouts + _tiles(batch) if batch else layouts


class _Shape(NamedTuple):
    """Sizes of the tiles of one map."""

    tiles: int
    width: int
    groups: int

    @classmethod
    def of(cls, one: Tiled) -> _Shape:
        rows, volume = one.table.shape
        tiles = one.sections * -(-rows // TILE_ROWS)
        return cls(tiles, -(-volume // one.sections), -(-tiles // GROUP_TILES))

    @property
    def bins(self) -> int:
        """How many tiles of a group, and of the map, have each number of slots."""
        return (self.width + 1) * (self.groups + 1)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Elements of the four tensors, rounded up so that each begins at a multiple of 16 B."""
        tiles, width, _ = self
        return (
            tiles * TILE_ROWS,
            -(-tiles * width // 4) * 4,
            -(-tiles // 4) * 4,
            tiles * width * TILE_ROWS,
        )


def _tiles(maps: Sequence[Tiled]) -> list[Layout]:
    device = maps[0].table.device
    shapes = [_Shape.of(one) for one in maps]
    items = sum(one.table.shape[0] * one.sections for one in maps)
    tiles = sum(shape.tiles for shape in shapes)
    words = sum(s.tiles * one.masks.shape[1] for s, one in zip(shapes, maps, strict=True))
    bins = sum(shape.bins for shape in shapes)
    scratch = torch.empty(bins + words + tiles, dtype=torch.int32, device=device)
    size = sum(sum(shape.sizes) for shape in shapes)
    made = torch.empty(size, dtype=torch.int32, device=device)
    sort = RadixSort.of(items, device)

    layouts: list[Layout] = []
    tasks: list[bytes] = []
    place = made.storage_offset()
    base = made.data_ptr() - 4 * place
    item = tile = word = bin_ = gray_bits = 0
    for one, shape in zip(maps, shapes, strict=True):
        (rows, volume), row_words = one.table.shape, one.masks.shape[1]
        gray_bits = max(gray_bits, min(GRAY_BITS, shape.width))
        count, width, _ = shape
        starts = [place]
        for part in shape.sizes:
            starts.append(starts[-1] + part)
        out, slots, counts, lists, place = starts
        layouts.append(
            (
                made.as_strided((count, TILE_ROWS), (TILE_ROWS, 1), out),
                made.as_strided((count, width), (width, 1), slots),
                made.as_strided((count,), (1,), counts),
                made.as_strided(
                    (count, width, TILE_ROWS), (width * TILE_ROWS, TILE_ROWS, 1), lists
                ),
            )
        )
        pointers = (
            *(one.masks.data_ptr(), one.table.data_ptr()),
            *(base + 4 * out, base + 4 * slots, base + 4 * counts, base + 4 * lists),
        )
        first, own = tile, count // one.sections
        for section in range(one.sections):
            sizes = rows, item, tile, first, word, bin_
            kind = volume, row_words, section, one.sections, width, shape.groups
            tasks.append(_TASK.pack(*pointers, *sizes, *kind))
            item, tile, word = item + rows, tile + own, word + own * row_words
        bin_ += shape.bins
    packed = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])

    module = cuda.module("tiles.cu", device)
    map_bits = (len(tasks) - 1).bit_length()
    counted = scratch.data_ptr()
    keys = _KEYS.pack(*sort.pointers, counted, items, bins, len(tasks), gray_bits, map_bits)
    module.launch("mask_keys", max(1, min(_BLOCKS, -(-items // 256))), keys + packed, device)
    sort.run(passes_of(gray_bits + map_bits))
    kept = counted + 4 * bins
    order = sort.values.data_ptr()
    arguments = _TILES.pack(order, counted, kept, kept + 4 * words, tiles, len(tasks)) + packed
    module.launch("tile_masks", -(-tiles // 8), arguments, device)
    module.launch("tile_lists", tiles, arguments, device)
    return layouts
