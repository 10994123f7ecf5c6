"""Maps of native points whose triplets a device has counted, and the host has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap, PointSet
from pcnn.kernels import pinned
from pcnn.maps.point_memory import (
    MOST_OF_SLOT,
    map_bytes,
    most_bytes,
    most_compared,
    refuse,
    refuse_uncounted,
)


@dataclass(frozen=True)
class PendingMap:
    """A map between count and fill: several of them share one wait of the host.

    Args:
        ends: ``[K + 1]`` int64, where the triplets of every slot begin, on the device.
        fill: makes the map, given the same numbers on the host.
        rows: of (input, output).
        symmetric: whether the map serves as its own transpose.
        crowd: ``[2]`` int64 on the device, of a search: its triplets, and a measure of the pairs it
            compares (`pcnn.maps.neighbour_kernels.SortedPoints`); ``None`` where nothing is
            searched.
    """

    ends: Tensor
    fill: Callable[[Tensor], KernelMap]
    rows: tuple[int, int]
    symmetric: bool = False
    crowd: Tensor | None = None

    @property
    def counted(self) -> tuple[Tensor, ...]:
        """What the host has to know."""
        return (self.ends,) if self.crowd is None else (self.ends, self.crowd)

    @staticmethod
    def finish_all(
        maps: Sequence[PendingMap], points: PointSet, memory: float | None = None
    ) -> list[KernelMap]:
        """Fill maps of one device, after one wait for all of them.

        Args:
            maps: of one plan.
            points: the finest points, for messages.
            memory: budget [GB], as in `pcnn.maps.point_memory.most_bytes`.

        Raises:
            DenseCloudError: the maps would take more memory than they may, or a slot holds more
                triplets than kernels count; nothing was listed.
        """
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
