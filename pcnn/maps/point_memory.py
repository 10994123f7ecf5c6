"""Memory of the kernel maps of native points, known before it is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import NoReturn

import torch
from torch import Tensor

from pcnn.errors import DenseCloudError
from pcnn.geometry import KernelMap, PointSet
from pcnn.geometry.tile_steps import TILE_ROWS, stored_steps
from pcnn.kernels.streams import read_copy

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
    # ranges of inputs and steps, see `pcnn.geometry.tile_steps`
    sides, size = (rows[1:] if symmetric else rows), 0
    for side in sides:
        tiles = -(-side // TILE_ROWS)
        steps = 4 * (TILE_ROWS + 1) * stored_steps(triplets, tiles, volume)
        size += 4 * (volume + 5) * TILE_ROWS * tiles + 4 * triplets + steps
    # pairs, and slots by row until they are in tiles
    return size + 8 * triplets + 4 * triplets * len(sides)


@dataclass(frozen=True)
class Budget:
    """What the maps of a set of points may take."""

    points: PointSet
    bytes: int

    @classmethod
    def of(cls, points: PointSet) -> Budget:
        """As the points say it, or what their device allows."""
        if points.memory is not None:
            return cls(points, int(points.memory * 1e9))
        if points.device.type == "cuda":
            half = int(torch.cuda.get_device_properties(points.device).total_memory) // 2
            return cls(points, min(half, max(DEVICE_BYTES, DEVICE_BYTES_A_POINT * points.rows)))
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        return cls(points, min(HOST_BYTES, half))

    @property
    def compared(self) -> int:
        """Pairs that are compared at most before a cloud is refused uncounted."""
        return COMPARED_PER_TRIPLET * self.bytes // 4

    def check_compared(self, pairs: int) -> None:
        """Refuse to compare so many pairs."""
        if pairs > self.compared:
            self._refuse(f"relate so many points that {pairs:,} pairs were to be compared")

    def check_listed(self, triplets: int, taken: int, whole: bool = True) -> None:
        """Refuse to list so many triplets, or numbers of them that ran over."""
        if taken > self.bytes or not whole:
            self._refuse(f"have {triplets:,} triplets or more, {taken / 1e9:.2f} GB")

    def _refuse(self, found: str) -> NoReturn:
        points = self.points
        raise DenseCloudError(
            f"native points: the kernel maps of {points.rows:,} points {found}, where "
            f"{self.bytes / 1e9:.2f} GB may be taken on {points.device}. Thin the points, such as "
            f"geometry.thin={min(points.voxel_size) / 3:.3g}, or raise the budget: "
            "geometry.memory=GB"
        )


@dataclass(frozen=True)
class PendingMap:
    """A map between count and fill: several of them share one wait of the host."""

    ends: Tensor  # [K + 1] int64, where the triplets of every slot begin, on the device
    fill: Callable[[Tensor], KernelMap]  # makes the map, given the same numbers on the host
    rows: tuple[int, int]  # of (input, output)
    symmetric: bool = False  # whether the map serves as its own transpose
    crowd: Tensor | None = None  # [2] int64 on the device: the triplets, and the pairs compared
    #: takes the triplets of all maps of a search, in order, before these are filled
    listed: Callable[[Sequence[int]], object] | None = None

    @staticmethod
    def finish_all(maps: Sequence[PendingMap], points: PointSet) -> list[KernelMap]:
        """Fill maps of one device, after one wait for all of them."""
        if not maps:
            return []
        parts = [part for one in maps for part in (one.ends, one.crowd) if part is not None]
        numbers = iter(read_copy(parts[0] if len(parts) == 1 else torch.cat(parts)))
        ends: list[Tensor] = []
        budget, total, taken = Budget.of(points), 0, 0
        searches: dict[Callable[[Sequence[int]], object], list[int]] = {}
        for one in maps:
            own = list(islice(numbers, len(one.ends)))
            ends.append(torch.tensor(own))
            triplets = own[-1]
            if one.crowd is not None:
                triplets, crowd = islice(numbers, 2)
                budget.check_compared(crowd)
            size = map_bytes(triplets, one.rows, len(own) - 1, points.device.type, one.symmetric)
            total, taken = total + triplets, taken + size
            # a sum of 32 bits that ran over leaves ends that decrease, or lead elsewhere
            whole = triplets == own[-1] and 0 <= max(map(sub, own[1:], own)) <= MOST_OF_SLOT
            budget.check_listed(total, taken, whole)
            if one.listed is not None:
                searches.setdefault(one.listed, []).append(triplets)
        for listed, found in searches.items():
            listed(found)
        return [one.fill(own) for one, own in zip(maps, ends, strict=True)]
