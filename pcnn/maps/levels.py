"""Sites of all levels of a network, straight from the finest ones, without a host sync.

Levels of native points are made of those of their cells, by ``csrc/point_levels.cu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pcnn.geometry import Kernel, PointSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import HALF, MAX_BATCH, SENTINEL
from pcnn.geometry.voxel_grid import Box, cells_along
from pcnn.kernels import cuda
from pcnn.kernels.streams import read_copy
from pcnn.maps.radix_sort import KEY_BLOCKS, MAX_PASSES, TILE, RadixSort, passes_of, state_words

MAX_LEVELS = 12

#: Words of an extent: largest and smallest batch index, x, y and z, and the flags of what fails.
EXTENT_WORDS = 9
_FIELD_NAMES = ("the batch index", "x", "y", "z")
_THREADS = 256
_TOO_WIDE = 256


@dataclass(frozen=True)
class Levels:
    """Sites of several levels, each with room for as many as the finest level has rows."""

    keys: Tensor  # [L, capacity] int64 packed keys, sorted, in the first counts[l] columns
    first: Tensor  # [L, capacity] int32, a finest row inside every site
    inverse: Tensor  # [L, capacity] int32, site of every finest row
    counts: Tensor  # [L] int32 sites of every level, on the device
    order: Tensor  # [L * capacity] int32
    whole: bool = False  # the first level is the finest itself


def pack_cells(
    cells: Tensor,  # [N, 4] int32 (batch, x, y, z) in any order; or their keys [N] int64
    extent: Tensor | None = None,  # [9] int32, zeroed; made if not given
    count: Tensor | None = None,  # [1] int32, number of cells that count; None means all
) -> tuple[Tensor, Tensor]:
    """Packed keys of cells, and their extent: largest and smallest batch index, x, y and z."""
    n, device, packed = cells.shape[0], cells.device, cells.ndim == 1
    keys = cells if packed else torch.empty(n, dtype=torch.int64, device=device)
    if extent is None:
        extent = torch.zeros(EXTENT_WORDS, dtype=torch.int32, device=device)
    given: dict[str, Any] = {"cells": None if packed else cells, "keys": keys, "n": n}
    name = "extent_of_keys" if packed else "pack_cells"
    module = cuda.module("levels.cu", device)
    module.launch(name, _walking(n), **given, extent=extent, count=count)
    return keys, extent


def check_overflow(flags: int) -> None:
    """Refuse cells that do not fit a packed key."""
    for field, name in enumerate(_FIELD_NAMES):
        if flags >> field & 1:
            limit = f"-{HALF}..{HALF - 1}" if field else f"0..{MAX_BATCH - 1}"
            raise ValueError(f"voxel grid: {name} leaves {limit}, all that a packed key holds")
    if flags & _TOO_WIDE:
        raise ValueError(
            "voxel grid: the cloud fills the packed key, and its levels together need more than "
            "64 bits to be sorted; centre the cloud or use larger voxels"
        )


def unique_sites(
    keys: Tensor,  # [N] int64 packed keys, in any order, duplicates allowed
    extent: Tensor,
    strides: Sequence[Triple],
    count: Tensor | None = None,  # [1] int32, number of keys that count; None means all
    counts: Tensor | None = None,  # [L] int32 for the numbers of sites, made if not given
    scratch: Tensor | None = None,  # [scratch_words(L, N)] int32, zeroed, made if not given
    passes: int = MAX_PASSES,
    needed: Tensor | None = None,  # [1] int32 for the passes that the cloud's extent takes
    rooms: Sequence[int] | None = None,
) -> Levels:
    """Sorted unique sites ``stride * floor(c / stride)`` for each of several strides."""
    levels, n, device = len(strides), keys.shape[0], keys.device
    level_bits = (levels - 1).bit_length()
    if levels > MAX_LEVELS:
        raise ValueError(f"one sort takes at most {MAX_LEVELS} levels, got {levels}: {strides}")
    if scratch is None:
        scratch = torch.zeros(scratch_words(levels, n), dtype=torch.int32, device=device)
    words = state_words(levels * n)
    sort = RadixSort.of(levels * n, device, scratch[:words])
    steps = [(stride,) for stride in strides]
    module = cuda.module("levels.cu", device)
    module.launch(
        "level_keys",
        max(1, _walking(n)),
        *(keys, count, extent, *sort.buffers.values(), needed, n, levels, level_bits, steps),
    )
    launched = min(passes, passes_of(63 + level_bits))
    sort.run(launched)
    tiles, status = max(1, -(-n // TILE)), scratch.data_ptr() + 4 * words
    if rooms is None:
        sites = torch.empty(levels, n, dtype=torch.int64, device=device)
        first, inverse = torch.empty(2, levels, n, dtype=torch.int32, device=device).unbind()
    else:
        sites = torch.full((levels, n), SENTINEL, dtype=torch.int64, device=device)
        first, inverse = torch.zeros(2, levels, n, dtype=torch.int32, device=device).unbind()
    if counts is None:
        counts = torch.empty(levels, dtype=torch.int32, device=device)
    module.launch(
        "unique_sites",
        levels * tiles,
        *(sort.keys, sort.values, keys, count, status, status + 4 * levels * tiles),
        *(sites, first, inverse, counts, sort.state, launched, n, n, tiles, steps),
        [n] * levels if rooms is None else rooms,
    )
    return Levels(sites, first, inverse, counts, sort.values[0])


def counted_sites(
    keys: Tensor, strides: Sequence[Triple], passes: int = MAX_PASSES
) -> tuple[Levels, list[int], int]:
    """`unique_sites` with their numbers on the host, and the passes taken; waits once."""
    parts = [EXTENT_WORDS, 1, len(strides), scratch_words(len(strides), len(keys))]
    words = torch.zeros(sum(parts), dtype=torch.int32, device=keys.device)
    extent, needed, counts, scratch = words.split_with_sizes(parts)
    pack_cells(keys, extent)
    sites = unique_sites(keys, extent, strides, None, counts, scratch, passes, needed)
    numbers = read_copy(words[: sum(parts[:3])])
    check_overflow(numbers[EXTENT_WORDS - 1])
    took, rows = numbers[EXTENT_WORDS], numbers[EXTENT_WORDS + 1 :]
    return (sites, rows, took) if took <= passes else counted_sites(keys, strides, took)


def fitting_counts(counts: Tensor, rooms: Sequence[int]) -> Tensor:
    """Numbers of sites of rooms of fixed size: all, or zeros where one does not fit."""
    fitting = torch.empty_like(counts)
    module = cuda.module("levels.cu", counts.device)
    module.launch("fit_counts", 1, counts=counts, fitting=fitting, n=len(rooms), rooms=rooms)
    return fitting


def rows_above(levels: Levels, wanted: Sequence[tuple[int | None, int, int]]) -> list[Tensor]:
    """Row of a coarser level above every row of a finer one, for many pairs of levels."""
    device, sizes = levels.inverse.device, [rows for _, _, rows in wanted]
    found = torch.empty(sum(sizes), dtype=torch.int64, device=device).split_with_sizes(sizes)
    module = cuda.module("levels.cu", device)
    for start in range(0, len(wanted), MAX_LEVELS):
        tasks, blocks = [], 0
        for number in range(start, min(start + MAX_LEVELS, len(wanted))):
            finer, coarser, rows = wanted[number]
            inside = None if finer is None else levels.first[finer]
            tasks.append((inside, levels.inverse[coarser], found[number], rows, blocks))
            blocks += -(-rows // _THREADS)
        module.launch("rows_above", blocks, tasks=tasks, n=len(tasks))
    return list(found)


def scratch_words(levels: int, n: int) -> int:
    """Zeroed words that `unique_sites` needs for so many levels and keys."""
    return state_words(levels * n) + levels * (max(1, -(-n // TILE)) + 1)


def box_of(extent: Sequence[int]) -> Box:
    """Lowest and highest coordinate of every axis, from the words of an extent on the host."""
    if not extent[1]:
        return (0, 0, 0), (0, 0, 0)
    x, y, z = (HALF - extent[5 + axis] for axis in range(3))
    u, v, w = (extent[1 + axis] - 1 - HALF for axis in range(3))
    return (x, y, z), (u, v, w)


def box_bits(box: Box, batch_size: int, stride: Triple = (1, 1, 1)) -> int:
    """Bits of a cell counted from the lowest one, from what the host knows."""
    return sum((n - 1).bit_length() for n in (*cells_along(box, stride), batch_size))


def _walking(rows: int) -> int:
    """Blocks of a kernel that walks over so many rows."""
    return min(KEY_BLOCKS, -(-rows // _THREADS))


class Step(NamedTuple):
    """How a level comes about."""

    parent: int  # number of the finer level; 0 is the set that the levels are made from
    stride: Triple  # cells of the finer level along the edges of one of its own


def strided_points(fine: PointSet, kernel: Kernel) -> PointSet:
    """One point in every coarse cell; see `PointSet.strided`."""
    levels, _ = point_levels(fine, [Step(0, kernel.stride)])
    return levels[1]


def point_levels(
    root: PointSet, steps: Sequence[Step], passes: int = MAX_PASSES
) -> tuple[list[PointSet], int]:
    """Levels of a set, each from its parent; they are not kept with the sets."""
    found = [root]
    if not steps or not root.rows:
        for parent, stride in steps:
            found.append(found[parent].strided(Kernel.of(stride, stride, padding=0)))
        return found, passes
    strides: list[Triple] = [(1, 1, 1)]
    for parent, (a, b, c) in steps:
        x, y, z = strides[parent]
        strides.append((x * a, y * b, z * c))
    wanted = sorted(set(strides[1:]))
    sites, rows, took = counted_sites(root.keys, wanted, passes)  # the one wait
    start = (root.corners - root.origins).contiguous()
    for (parent, stride), total in zip(steps, strides[1:], strict=True):
        place = wanted.index(total)
        given = {
            "first": sites.first[wanted.index(strides[parent])] if parent else None,
            "site": sites.inverse[place],
            "keys": sites.keys[place],
            "start": start,
            "stride": total,
        }
        found.append(_level(found[parent], stride, rows[place], given))
    return found, took


def _level(fine: PointSet, stride: Triple, m: int, given: dict[str, Any]) -> PointSet:
    """The level of ``m`` rows, given what is known of its cells."""
    device, n = fine.device, fine.rows
    coarse = torch.empty(m, 3, dtype=torch.float32, device=device)
    inverse = torch.empty(n, dtype=torch.int64, device=device)
    keys = torch.empty(m, dtype=torch.int64, device=device)
    # all bits set: as unsigned numbers the largest there are
    least, chosen = torch.full((2, m), -1, dtype=torch.int64, device=device).unbind()
    fields: dict[str, Any] = {
        **given,
        "points": fine.points.contiguous(),
        "inverse": inverse,
        "least": least,
        "chosen": chosen,
        "coarse": coarse,
        "coarse_keys": keys,
        "n": n,
        "m": m,
        "size": [edge * step for edge, step in zip(fine.voxel_size, stride, strict=True)],
    }
    kernels = cuda.module("point_levels.cu", device)
    arguments = kernels.pack("place_level", fields)
    kernels.run("nearest_distances", -(-n // _THREADS), arguments)
    kernels.run("nearest_rows", -(-n // _THREADS), arguments)
    kernels.run("place_level", -(-m // _THREADS), arguments)
    return fine.level_of(stride, coarse, keys, inverse, chosen)
