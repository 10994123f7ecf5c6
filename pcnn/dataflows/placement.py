"""Where the rows of a map lie in a padded buffer, kept with the map: layers share it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from pcnn.dataflows.grouping import Grouping
from pcnn.dataflows.padded_buffer import PaddedBuffer, padded_buffer


class Placement(NamedTuple):
    """A padded buffer, and what kernels read of it."""

    place: PaddedBuffer  # the buffer
    shifts: Tensor  # place.shifts on the device, [K] int64
    order: Tensor | None  # the matrix of every slot of the blocks, [S] int64 on the device

    def matrices(self, all_matrices: Tensor) -> list[Tensor]:
        """The matrices ``[S, ...]`` of every block, of those of all slots ``[K, ...]``.

        Views where all are evenly spaced, otherwise parts of one copy.
        """
        if self.order is None:
            return [block.take(all_matrices) for block in self.place.blocks]
        sizes = [len(block.slots) for block in self.place.blocks]
        return list(all_matrices.index_select(0, self.order).split(sizes))


#: By the offsets of a map: they are freed with it, and so are its placements.
_KEPT = WeakIdKeyDictionary()


def placement(
    offsets: Tensor, grouping: Grouping, identity: int, mirrored: bool, device: torch.device
) -> Placement:
    """The placement of a map's slots, made at the first request."""
    kept: dict[object, Placement] | None = _KEPT.get(offsets)
    if kept is None:
        kept = _KEPT[offsets] = {}
    key = grouping, identity, mirrored, device
    found = kept.get(key)
    if found is None:
        place = padded_buffer(tuple(offsets.tolist()), grouping, identity, mirrored)
        even = all(block.step is not None for block in place.blocks)
        order = None if even else upload(place.order(), device)
        found = kept[key] = Placement(place, upload(place.shifts, device), order)
    return found


def upload(numbers: object, device: torch.device) -> Tensor:
    """A few integers as int64 on a device; the host does not wait for the copy."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)
