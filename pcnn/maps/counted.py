"""Maps of native points whose triplets a device has counted, and the host has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.kernels import pinned


@dataclass(frozen=True)
class CountedMap:
    """A map between count and fill: several of them share one wait of the host.

    Args:
        ends: ``[K + 1]`` int64, where the triplets of every slot begin, on the device.
        fill: makes the map, given the same numbers on the host.
    """

    ends: Tensor
    fill: Callable[[Tensor], KernelMap]


def filled(maps: Sequence[CountedMap]) -> list[KernelMap]:
    """Fill counted maps of one device, after one wait for all of them."""
    if not maps:
        return []
    sizes = [one.ends.shape[0] for one in maps]
    ends = maps[0].ends if len(maps) == 1 else torch.cat([one.ends for one in maps])
    numbers = torch.tensor(pinned.read_copy(ends))
    return [one.fill(own) for one, own in zip(maps, numbers.split(sizes), strict=True)]
