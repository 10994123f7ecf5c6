"""Memory of the kernel maps of native points, known before it is taken.

Triplets grow with the square of the points in a cell. So every search is bounded before it begins
and counted before it is listed, and a plan that would take more than its budget is refused.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.errors import DenseCloudError as DenseCloudError
from pcnn.geometry import KernelMap, PointSet
from pcnn.geometry.row_lists import MOST_TRIPLETS, stored_steps
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels import pinned
from pcnn.maps.host_search import HostSearch

#: Most bytes that maps take on a CPU, unless they are told otherwise.
HOST_BYTES = 7_200_000_000

#: Pairs that are compared for every triplet that the budget holds, at most. Scans take 2 to 6, and
#: whatever takes more has far more triplets than fit: counting them would only take time.
COMPARED_PER_TRIPLET = 8

#: A thread of CUDA kernels counts the triplets of a slot in 32 bits.
MOST_OF_SLOT = (1 << 31) - 1


#: Most bytes that a plan takes on a GPU of up to a million points, and for every point of more.
DEVICE_BYTES, DEVICE_BYTES_A_POINT = 7_700_000_000, 7_700

#: Maps of more triplets, and of so many a row, have no list of triplets beside their row lists.
CROWDED, CROWDED_ROW = 1 << 27, 256

#: Triplets of a crowded map that are listed at once, of some 32 bytes each.
PART = 1 << 23


def is_crowded(triplets: int, rows: int) -> bool:
    """True if a map of so many triplets and output rows is listed in parts, by row alone."""
    return max(CROWDED, CROWDED_ROW * rows) < triplets <= MOST_TRIPLETS


def map_bytes(
    triplets: int, rows: tuple[int, int], volume: int, device_type: str, symmetric: bool = True
) -> int:
    """Bytes that a map of native points and its layouts take at most, backward included."""
    if device_type == "cpu":
        size = 4 * triplets + 16 * min(triplets, rows[1] * volume) + 8 * rows[1]
        # the transpose is sorted from pairs
        return size if symmetric else size + 80 * triplets
    # lists of rows and of steps, see `pcnn.geometry.row_lists`
    sides, size = (rows[1:] if symmetric else rows), 0
    for side in sides:
        tiles = -(-side // TILE_ROWS)
        steps = 4 * (TILE_ROWS + 1) * stored_steps(triplets, tiles, volume)
        size += 4 * (volume + 5) * TILE_ROWS * tiles + 4 * triplets + steps
    if is_crowded(triplets, rows[1]):
        return size + 32 * PART + 24 * volume * max(rows)
    # pairs, and slots by row until they are in tiles
    return size + 8 * triplets + 4 * triplets * len(sides)


def most_bytes(points: PointSet, memory: float | None) -> int:
    """Bytes that the maps of a set of points may take."""
    if memory is not None:
        return int(memory * 1e9)
    if points.device.type == "cuda":
        half = int(torch.cuda.get_device_properties(points.device).total_memory) // 2
        return min(half, max(DEVICE_BYTES, DEVICE_BYTES_A_POINT * points.rows))
    return _host_bytes()


@functools.cache
def _host_bytes() -> int:
    return min(HOST_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


def most_compared(most: int) -> int:
    """Pairs that are compared at most before a cloud is refused uncounted."""
    return COMPARED_PER_TRIPLET * most // 4


def counted_searches(
    points: PointSet, searches: Sequence[HostSearch], memory: float | None
) -> list[list[int] | None]:
    """Count what searches on the host will list, where that may not fit."""
    most = most_bytes(points, memory)
    compared = [search.compared for search in searches]
    # maps that were not counted are listed in parts, and joined
    if sum(map(_search_bytes, searches, compared)) + 4 * sum(compared) <= most:
        return [None] * len(searches)
    if sum(compared) > most_compared(most):
        refuse_uncounted(points, sum(compared), most)
    counts: list[list[int] | None] = []
    total = taken = 0
    for search in searches:
        own = search.count((most - taken) // 4)  # 4 bytes each, at least
        counts.append(own)
        total += sum(own)
        taken += _search_bytes(search, sum(own))
        if taken > most:
            refuse(points, total, taken, most)
    return counts


def _search_bytes(search: HostSearch, triplets: int) -> int:
    rows = len(search.points), len(search.centres)
    return map_bytes(triplets, rows, search.volume, "cpu", search.symmetric)


def refuse(points: PointSet, triplets: int, taken: int, most: int) -> None:
    """Raise: the triplets were counted."""
    _refuse(points, f"have {triplets:,} triplets or more, {taken / 1e9:.2f} GB", most)


def refuse_uncounted(points: PointSet, compared: int, most: int) -> None:
    """Raise: there are too many pairs to compare."""
    _refuse(points, f"relate so many points that {compared:,} pairs were to be compared", most)


def _refuse(points: PointSet, found: str, most: int) -> None:
    (x, y, z), cloud, number = densest_cell(points)
    edges = " x ".join(f"{edge:g}" for edge in points.voxel_size)
    raise DenseCloudError(
        f"native points: the kernel maps of {points.rows:,} points {found}, where "
        f"{most / 1e9:.2f} GB may be taken on {points.device}. The densest cell ({edges} m), at "
        f"({x:.3f}, {y:.3f}, {z:.3f}) m of cloud {cloud}, holds {number:,} points. Thin the "
        f"points, such as geometry.thin={min(points.voxel_size) / 3:.3g} (pcnn.native_points(..., "
        "thin=...)), or raise the budget: geometry.memory=GB"
    )


def densest_cell(points: PointSet) -> tuple[tuple[float, float, float], int, int]:
    """Centre [m] of the cell with the most points, in the frame the points came in."""
    if not points.rows:
        raise ValueError("no cell is the densest of no points")
    keys, counts = torch.unique_consecutive(points.keys, return_counts=True)
    place = counts.argmax()
    cloud, *cell = points.key_format.unpack(keys[place : place + 1])[0].tolist()
    corner = points.corners[cloud].tolist()
    axes = zip(corner, cell, points.voxel_size, strict=True)
    x, y, z = (start + (number + 0.5) * edge for start, number, edge in axes)
    return (x, y, z), cloud, int(counts[place])


@dataclass(frozen=True)
class PendingMap:
    """A map between count and fill: several of them share one wait of the host."""

    ends: Tensor  # [K + 1] int64, where the triplets of every slot begin, on the device
    fill: Callable[[Tensor], KernelMap]  # makes the map, given the same numbers on the host
    rows: tuple[int, int]  # of (input, output)
    symmetric: bool = False  # whether the map serves as its own transpose
    crowd: Tensor | None = None  # [2] int64 on the device

    @property
    def counted(self) -> tuple[Tensor, ...]:
        """The numbers that the host has to know."""
        return (self.ends,) if self.crowd is None else (self.ends, self.crowd)

    @staticmethod
    def finish_all(
        maps: Sequence[PendingMap], points: PointSet, memory: float | None = None
    ) -> list[KernelMap]:
        """Fill maps of one device, after one wait for all of them."""
        if not maps:
            return []
        parts = [part for one in maps for part in one.counted]
        numbers = torch.tensor(pinned.read_copy(parts[0] if len(parts) == 1 else torch.cat(parts)))
        found = iter(numbers.split([part.shape[0] for part in parts]))
        ends: list[Tensor] = []
        most, total, taken = most_bytes(points, memory), 0, 0
        limit = most_compared(most)
        for one in maps:
            own = next(found)
            ends.append(own)
            triplets = int(own[-1])
            if one.crowd is not None:
                triplets, crowd = next(found).tolist()
                if crowd > limit:
                    refuse_uncounted(points, crowd, most)
            size = map_bytes(triplets, one.rows, len(own) - 1, points.device.type, one.symmetric)
            total, taken = total + triplets, taken + size
            # a sum of 32 bits that ran over leaves ends that decrease, or lead elsewhere
            if (
                taken > most
                or triplets != int(own[-1])
                or not 0 <= int(own.diff().max()) <= MOST_OF_SLOT
            ):
                refuse(points, total, taken, most)
        return [one.fill(own) for one, own in zip(maps, ends, strict=True)]
