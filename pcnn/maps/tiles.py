"""The ``tiles`` layout of many maps at once: one sort, one pass over the tiles."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.geometry.layouts import TILE_ROWS, Layout
from pcnn.kernels import cuda
from pcnn.maps.radix_sort import RadixSort

MAX_TASKS = 32
GRAY_BITS = 27
_BLOCKS = 264

_TASK = struct.Struct("PPPqqqii0q")
_NO_TASK = b"\0" * _TASK.size
_KEYS = struct.Struct("PPPPPqii0q")
_SLOTS = struct.Struct("Pqi0q")


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
    lists = torch.empty(
        sum(c * k for c, (_, k) in zip(counts, masks, strict=True)),
        dtype=torch.int32,
        device=device,
    )
    tile_counts = torch.empty(tiles, dtype=torch.int32, device=device)
    map_bits = (len(masks) - 1).bit_length()
    sort = RadixSort.of(items, device)

    tasks: list[bytes] = []
    results: list[Layout] = []
    item = tile = place = 0
    for n, count, (words, volume) in zip(rows, counts, masks, strict=True):
        slots = lists[place : place + count * volume].view(count, volume)
        own = tile_counts[tile : tile + count]
        task = _TASK.pack(
            words.data_ptr(),
            slots.data_ptr(),
            own.data_ptr(),
            n,
            item,
            tile,
            volume,
            words.shape[1],
        )
        tasks.append(task)
        results.append((sort.values[0, item : item + n], slots, own))
        item, tile, place = item + n, tile + count, place + count * volume
    packed = b"".join([*tasks, *[_NO_TASK] * (MAX_TASKS - len(tasks))])

    module = cuda.module("tiles.cu", device)
    keys = _KEYS.pack(*sort.pointers, items, len(masks), map_bits)
    module.launch("mask_keys", max(1, min(_BLOCKS, -(-items // 256))), keys + packed, device)
    sort.run(GRAY_BITS + map_bits)
    arguments = _SLOTS.pack(sort.values.data_ptr(), tiles, len(masks)) + packed
    module.launch("tile_slots", -(-tiles // 8), arguments, device)
    return results
