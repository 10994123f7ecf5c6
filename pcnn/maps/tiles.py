"""The ``tiles`` layout of many maps at once: one sort, one pass over the tiles."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry.layouts import GRAY_BITS, TILE_ROWS, Layout, mask_words
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import RadixSort, passes_of

MAX_TASKS = 32
_BLOCKS = 264

_TASK = struct.Struct("PPPqqqii0q")
_NO_TASK = b"\0" * _TASK.size
_KEYS = struct.Struct("PPPPPqii0q")
_MASKS = struct.Struct("PPqii0q")
_SLOTS = struct.Struct("Pqi0q")


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


def tiles_of_masks(masks: Sequence[tuple[Tensor, int]]) -> list[Layout]:
    """Row order and slot lists of several maps (see `pcnn.geometry.layouts.tiles`).

    Args:
        masks: per map, its slot masks ``[N_out, words]`` int32 and its number of slots K.
    """
    layouts: list[Layout] = []
    for start in range(0, len(masks), MAX_TASKS):
        layouts += _tiles(masks[start : start + MAX_TASKS])
    return layouts


def _tiles(masks: Sequence[tuple[Tensor, int]]) -> list[Layout]:
    device = masks[0][0].device
    rows = [words.shape[0] for words, _ in masks]
    counts = [-(-n // TILE_ROWS) for n in rows]
    items, tiles = sum(rows), sum(counts)
    sizes = [c * k for c, (_, k) in zip(counts, masks, strict=True)]
    lists = torch.empty(sum(sizes), dtype=torch.int32, device=device)
    tile_counts = torch.empty(tiles, dtype=torch.int32, device=device)
    map_bits = (len(masks) - 1).bit_length()
    sort = RadixSort.of(items, device)

    tasks: list[bytes] = []
    item = tile = 0
    slots, own = lists.data_ptr(), tile_counts.data_ptr()
    for n, count, size, (words, volume) in zip(rows, counts, sizes, masks, strict=True):
        pointers = words.data_ptr(), slots, own
        tasks.append(_TASK.pack(*pointers, n, item, tile, volume, words.shape[1]))
        item, tile, slots, own = item + n, tile + count, slots + 4 * size, own + 4 * count
    packed = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])

    module = cuda.module("tiles.cu", device)
    keys = _KEYS.pack(*sort.pointers, items, len(masks), map_bits)
    module.launch("mask_keys", max(1, min(_BLOCKS, -(-items // 256))), keys + packed, device)
    sort.run(passes_of(GRAY_BITS + map_bits))
    arguments = _SLOTS.pack(sort.values.data_ptr(), tiles, len(masks)) + packed
    module.launch("tile_slots", -(-tiles // 8), arguments, device)
    views = zip(
        sort.values[0].split_with_sizes(rows),
        lists.split_with_sizes(sizes),
        tile_counts.split_with_sizes(counts),
        masks,
        strict=True,
    )
    return [(order, flat.view(-1, k), own) for order, flat, own, (_, k) in views]
