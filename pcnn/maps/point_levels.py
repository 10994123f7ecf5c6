"""Levels of native points on a device, by the kernels of ``csrc/point_levels.cu``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pcnn.geometry import Kernel, PointSet
from pcnn.geometry.kernel_slots import Triple
from pcnn.kernels import cuda
from pcnn.kernels.streams import read_copy
from pcnn.maps.levels import (
    EXTENT_WORDS,
    check_overflow,
    pack_cells,
    scratch_words,
    unique_sites,
)
from pcnn.maps.radix_sort import MAX_PASSES

_THREADS = 256


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
    parts = [EXTENT_WORDS, 1, len(wanted), scratch_words(len(wanted), root.rows)]
    words = torch.zeros(sum(parts), dtype=torch.int32, device=root.device)
    extent, needed, counts, scratch = words.split_with_sizes(parts)
    pack_cells(root.keys, extent)
    sites = unique_sites(root.keys, extent, wanted, None, counts, scratch, passes, needed)
    numbers = read_copy(words[: sum(parts[:3])])  # the one wait
    check_overflow(numbers[EXTENT_WORDS - 1])
    took, rows = numbers[EXTENT_WORDS], numbers[EXTENT_WORDS + 1 :]
    if took > passes:
        return point_levels(root, steps, took)
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
    kernels.launch("nearest_distances", -(-n // _THREADS), **fields)
    kernels.launch("nearest_rows", -(-n // _THREADS), **fields)
    kernels.launch("place_level", -(-m // _THREADS), **fields)
    return fine.level_of(stride, coarse, keys, inverse, chosen)
