"""Random kernel maps, most of whose slots have several inputs, and layers over them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from pcnn.geometry import KernelMap
from pcnn.ops.conformance import Case


@dataclass(frozen=True)
class FanIn(Case):
    """A layer over a random map, most slots with several inputs; its kernel has a volume alone."""

    symmetric: bool = False  # whether the map is its own transpose

    def _built(self) -> KernelMap:
        # n output rows, fewer input rows unless symmetric, some 8 triplets a row
        rows = self.n if self.symmetric else -(-2 * self.n // 3)
        sizes = rows, self.n, self.kernel.volume, 8 * self.n
        return random_map(*sizes, self.symmetric, device=self.device)


def random_map(
    n_in: int,
    n_out: int,
    volume: int,
    triplets: int,
    symmetric: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> KernelMap:
    """Random triplets in order, most slots with several inputs, some triplets twice."""
    triplets = triplets if n_in and n_out else 0
    random = torch.Generator().manual_seed(seed)
    # a few rows get most triplets, the last row none
    i = (torch.rand(triplets, generator=random) ** 2 * max(0, n_out - 1)).long()
    j = torch.randint(max(1, n_in), (triplets,), generator=random)
    k = (torch.rand(triplets, generator=random) * volume).long()
    k = torch.where(k == 1, 0, k)  # an empty slot, and a full one
    if symmetric:
        own = torch.arange(n_out)
        i, j = torch.cat((i, j, own)), torch.cat((j, i, own))
        k = torch.cat((k, volume - 1 - k, torch.full_like(own, volume // 2)))
    order = torch.argsort((k * max(1, n_out) + i) * max(1, n_in) + j)
    offsets = nn.functional.pad(torch.bincount(k, minlength=volume).cumsum(0), (1, 0))
    j, i = (rows[order].int().to(device) for rows in (j, i))
    return KernelMap.from_pairs(j, i, offsets, n_in, n_out, False, False, symmetric)
