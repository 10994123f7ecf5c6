"""Memory of the kernel maps of native points, known before it is taken."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from pcnn.errors import DenseCloudError
from pcnn.geometry import KernelMap, PointSet
from pcnn.geometry.packing import unpack
from pcnn.geometry.steps import TILE_ROWS, stored_steps
from pcnn.kernels import pinned

#: Most bytes that maps take on a CPU, unless they are told otherwise; and of a triplet there, while
#: it is sorted.
HOST_BYTES, HOST_TRIPLET = 7_200_000_000, 64

#: Most bytes that a plan takes on a GPU of up to a million points, and for every point of more.
DEVICE_BYTES, DEVICE_BYTES_A_POINT = 7_700_000_000, 7_700

#: Pairs that are compared for every triplet that the budget holds, at most. Scans take 2 to 6, and
#: whatever takes more has far more triplets than fit: counting them would only take time.
COMPARED_PER_TRIPLET = 8

#: A thread of CUDA kernels counts the triplets of a slot in 32 bits.
MOST_OF_SLOT = (1 << 31) - 1


def map_bytes(
    triplets: int, rows: tuple[int, int], volume: int, device_type: str, symmetric: bool = True
) -> int:
    """Bytes that a map of native points and its layouts take at most, backward included."""
    if device_type == "cpu":
        return HOST_TRIPLET * triplets + 16 * rows[1]
    # ranges of inputs and steps, see `pcnn.geometry.steps`
    sides, size = (rows[1:] if symmetric else rows), 0
    for side in sides:
        tiles = -(-side // TILE_ROWS)
        steps = 4 * (TILE_ROWS + 1) * stored_steps(triplets, tiles, volume)
        size += 4 * (volume + 5) * TILE_ROWS * tiles + 4 * triplets + steps
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


def compared_pairs(number: int) -> str:
    """What `refuse` says of pairs that were not counted."""
    return f"relate so many points that {number:,} pairs were to be compared"


def listed_triplets(number: int, taken: int) -> str:
    """What `refuse` says of triplets that were counted."""
    return f"have {number:,} triplets or more, {taken / 1e9:.2f} GB"


def refuse(points: PointSet, found: str, most: int) -> NoReturn:
    """Raise: maps of the points would take too much."""
    (x, y, z), cloud, number = densest_cell(points)
    edges = " x ".join(f"{edge:g}" for edge in points.voxel_size)
    raise DenseCloudError(
        f"native points: the kernel maps of {points.rows:,} points {found}, where "
        f"{most / 1e9:.2f} GB may be taken on {points.device}. The densest cell ({edges} m), at "
        f"({x:.3f}, {y:.3f}, {z:.3f}) m of cloud {cloud}, holds {number:,} points. Thin the "
        f"points, such as geometry.thin={min(points.voxel_size) / 3:.3g}, or raise the budget: "
        "geometry.memory=GB"
    )


def densest_cell(points: PointSet) -> tuple[tuple[float, float, float], int, int]:
    """Centre [m] of the cell with the most points, in the frame the points came in."""
    keys, counts = torch.unique_consecutive(points.keys, return_counts=True)
    place = counts.argmax()
    cloud, *cell = unpack(keys[place : place + 1])[0].tolist()
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
    crowd: Tensor | None = None  # [2] int64 on the device: the triplets, and the pairs compared

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
                    refuse(points, compared_pairs(crowd), most)
            size = map_bytes(triplets, one.rows, len(own) - 1, points.device.type, one.symmetric)
            total, taken = total + triplets, taken + size
            # a sum of 32 bits that ran over leaves ends that decrease, or lead elsewhere
            whole = triplets == int(own[-1]) and 0 <= int(own.diff().max()) <= MOST_OF_SLOT
            if taken > most or not whole:
                refuse(points, listed_triplets(total, taken), most)
        return [one.fill(own) for one, own in zip(maps, ends, strict=True)]
