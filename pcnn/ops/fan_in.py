"""Random kernel maps whose slots hold several inputs, as native points make them, for checks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.ops.conformance import Case


def map_of(
    i: Tensor, j: Tensor, k: Tensor, n_in: int, n_out: int, volume: int, symmetric: bool = False
) -> KernelMap:
    """Kernel map of triplets in any order, slots and rows as builders sort them."""
    order = torch.argsort((k * max(1, n_out) + i) * max(1, n_in) + j)
    ends = torch.cumsum(torch.bincount(k, minlength=volume), 0)
    offsets = torch.nn.functional.pad(ends, (1, 0)).cpu()
    rows = j[order].to(torch.int32), i[order].to(torch.int32)
    return KernelMap.from_pairs(
        *rows,
        offsets,
        n_in,
        n_out,
        one_per_slot=False,
        one_per_slot_transposed=False,
        symmetric=symmetric,
    )


def random_map(
    n_in: int, n_out: int, volume: int, triplets: int, symmetric: bool = False, seed: int = 0
) -> KernelMap:
    """Random triplets, most slots with several inputs, some triplets twice.

    Args:
        n_in: input rows.
        n_out: output rows; as many if ``symmetric``.
        volume: slots K, odd if ``symmetric``.
        triplets: number drawn; none where there are no rows.
        symmetric: whether the mirror image of every triplet is there too, and every row meets
            itself at the centre.
        seed: of the draw.
    """
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
    return map_of(i, j, k, n_in, n_out, volume, symmetric)


@dataclass(frozen=True)
class FanIn(Case):
    """A layer over a random map; of its kernel only the volume counts.

    Args:
        symmetric: whether the map is its own transpose.
    """

    symmetric: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()}-several-a-slot" + "-symmetric" * self.symmetric

    def map(self) -> KernelMap:
        """``n`` output rows, fewer input rows unless symmetric, some 8 triplets a row."""
        rows = self.n if self.symmetric else -(-2 * self.n // 3)
        built = random_map(rows, self.n, self.kernel.volume, 8 * self.n, self.symmetric)
        built = built.transpose() if self.transposed else built
        return moved(built, self.device)


def moved(kernel_map: KernelMap, device: str) -> KernelMap:
    """The same map on another device."""
    in_index, out_index, offsets = kernel_map.layout("pairs")
    return KernelMap.from_pairs(
        in_index.to(device),
        out_index.to(device),
        offsets,
        kernel_map.n_in,
        kernel_map.n_out,
        one_per_slot=False,
        one_per_slot_transposed=False,
        symmetric=kernel_map.symmetric,
    )
