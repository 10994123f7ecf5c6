"""Which points of a sorted set may lie within reach of centres: runs of its rows, on the host.

Rows of a point set are sorted by (cloud, cell x, y, z). Centres that follow each other and share a
cell are a group; the cells that a group's box touches are columns along z, each one run of rows. So
the candidates of a group come in the order of their rows, and how many there are is known before a
single pair is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pcnn.geometry.packing import KeyFormat
from pcnn.geometry.point_set import OUT_OF_CELL
from pcnn.maps.radius_pairs import BOX_MARGIN, Reach

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Most centres of a group.
GROUP_ROWS = 64

# a point may lie beside its cell by its rounding to float32, and cells are computed in float64
_MARGIN = OUT_OF_CELL * BOX_MARGIN


class Places(NamedTuple):
    """Points by the cells that they are sorted by."""

    points: Floats  # [N, 3] float32
    keys: Integers  # [N] int64, sorted
    key_format: KeyFormat  # of the keys
    start: Doubles  # [B, 3] float64, where cell
    size: Doubles  # [3] float64, edges of a cell


@dataclass(frozen=True)
class CellRuns:
    """Candidates of groups of centres."""

    rows: Integers  # [G + 1], group g is centres rows[g]..rows[g + 1]
    ends: Integers  # [G + 1], runs of group g are ends[g]..ends[g + 1]
    starts: Integers  # [R], first point of every run; ascending within a group
    lengths: Integers  # [R], its points, at least one
    candidates: Integers  # [G], points in the runs of every group

    @property
    def compared(self) -> int:
        """Pairs that a search compares: no fewer than it finds."""
        return int((np.diff(self.rows) * self.candidates).sum())

    @classmethod
    def of(cls, places: Places, centres: Floats, keys: Integers, reach: Reach) -> CellRuns:
        """Find the runs of all groups."""
        m, key_format = len(centres), places.key_format
        if not m or not len(places.keys):
            none, rows = np.zeros(0, np.int64), np.array([0, m] if m else [0], np.int64)
            return cls(rows, np.zeros_like(rows), none, none, np.zeros(len(rows) - 1, np.int64))
        fresh = np.flatnonzero(keys[1:] != keys[:-1]) + 1
        firsts = np.union1d(fresh, np.arange(0, m, GROUP_ROWS))
        cloud = keys[firsts] >> key_format.batch_shift
        width = np.array(reach if isinstance(reach, tuple) else (reach,) * 3) * BOX_MARGIN
        start, size = places.start[cloud], places.size
        low, high = (
            f.reduceat(centres, firsts).astype(np.float64) for f in (np.minimum, np.maximum)
        )
        bounds = _cell_bounds(places)
        first = np.floor((low - width - start) / size - _MARGIN).clip(*bounds).astype(np.int64)
        last = np.floor((high + width - start) / size + _MARGIN).clip(*bounds).astype(np.int64)
        first, last = np.maximum(first, bounds[0] + 1), np.minimum(last, bounds[1] - 1)  # [G, 3]
        half, shift = np.array(key_format.half), np.array(key_format.shifts)

        def key(x: Integers, y: Integers, z: Integers) -> Integers:
            cells = np.stack((x, y, z), 1).astype(np.int64)
            fields = (cells + half) << shift
            found: Integers = (cloud << key_format.batch_shift) + fields.sum(1)
            return found

        counts = []
        begins = []
        columns = np.maximum(0, (last - first + 1)[:, :2].max(0, initial=0))
        for step_x in range(columns[0]):
            for step_y in range(columns[1]):
                x, y = first[:, 0] + step_x, first[:, 1] + step_y
                there = (x <= last[:, 0]) & (y <= last[:, 1]) & (first[:, 2] <= last[:, 2])
                begin = np.searchsorted(places.keys, key(x, y, first[:, 2]))
                end = np.searchsorted(places.keys, key(x, y, last[:, 2]), side="right")
                begins.append(begin.astype(np.int32))
                counts.append(np.where(there, end - begin, 0).astype(np.int32))
        if not counts:
            begins, counts = [np.zeros(len(firsts), np.int32)], [np.zeros(len(firsts), np.int32)]
        every = np.stack(counts, 1)  # [G, columns]
        filled = every > 0
        ends = np.concatenate(([0], filled.sum(1).cumsum()))
        starts, lengths = np.stack(begins, 1)[filled], every[filled]
        rows = np.append(firsts, m)
        totals = every.sum(1, dtype=np.int64)
        return cls(rows, ends, starts.astype(np.int64), lengths.astype(np.int64), totals)


def _cell_bounds(places: Places) -> tuple[Integers, Integers]:
    """One cell below and one above those that hold points, along every axis."""
    masks = [(1 << bits) - 1 for bits in places.key_format.axis_bits]
    axes = zip(places.key_format.shifts, masks, places.key_format.half, strict=True)
    cells = [((places.keys >> shift) & mask) - half for shift, mask, half in axes]
    return (
        np.array([axis.min() - 1 for axis in cells]),
        np.array([axis.max() + 1 for axis in cells]),
    )
