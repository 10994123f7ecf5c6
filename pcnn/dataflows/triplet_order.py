"""Orders of a list of triplets, and what each of them makes a program read again.

The ablation behind Eq. 3 of PointCNN++: neighbours of the list that share a number share what
belongs to it, so the order decides how often weights and features are read and sums are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

#: The number that a list of triplets (i, j, k) is sorted by.
Sort = Literal["k", "i", "j"]

#: Layouts of a kernel map that list its triplets in each order.
LAYOUTS_OF: dict[Sort, tuple[str, ...]] = {
    "k": ("pairs", "counts"),
    "i": ("rows_csr",),
    "j": ("columns_csr",),
}


def order_of(sort: Sort, layouts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """What the kernels read of the layouts `LAYOUTS_OF` an order.

    Returns:
        Two of the numbers of every triplet, ``[T]`` int32, and the runs of the third: (j, i,
        lengths ``[K]``) for ``k``, (j, k, starts ``[N_out + 1]``) for ``i``, (i, k, starts
        ``[N_in + 1]``) for ``j``; runs are int64, on the triplets' device.
    """
    if sort == "k":
        in_index, out_index, _, counts = layouts
        return in_index, out_index, counts
    listed, slots, starts = layouts[:3]
    return listed, slots, starts


def triplets_of(sort: Sort, layouts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """``i``, ``j`` and ``k`` of every triplet, ``[T]`` int64, in their order."""
    first, second, runs = order_of(sort, layouts)
    lengths = runs if sort == "k" else runs[1:] - runs[:-1]
    numbers = torch.arange(lengths.shape[0], device=lengths.device)
    third = torch.repeat_interleave(numbers, lengths, output_size=first.shape[0])
    a, b = first.long(), second.long()
    if sort == "k":
        return b, a, third
    return (third, a, b) if sort == "i" else (a, third, b)


@dataclass(frozen=True)
class Accesses:
    """How often the programs of a list of triplets reach for global memory.

    Args:
        weights: times that a program reads ``W[k]``.
        inputs: times that it reads a row of the features.
        outputs: times that it adds to a row of the output.
    """

    weights: int
    inputs: int
    outputs: int

    def elements(self, c_in: int, c_out: int) -> int:
        """Elements that are read or added, as Eq. 2 and Eq. 3 count them: without blocks."""
        return self.weights * c_in * c_out + self.inputs * c_in + self.outputs * c_out


def accesses(i: Tensor, j: Tensor, k: Tensor, length: int) -> Accesses:
    """Accesses of Algorithm 1: where a number differs from that of the triplet before.

    Sorted by k, ``weights`` is about ``T / L + K`` instead of T. Waits for the device.

    Args:
        i: ``[T]`` output row of every triplet, in their order.
        j: ``[T]`` input row.
        k: ``[T]`` slot.
        length: triplets L of a program; each program begins with nothing.
    """
    return Accesses(*(_changes(number, length) for number in (k, j, i)))


def _changes(number: Tensor, length: int) -> int:
    changed = torch.ones_like(number, dtype=torch.bool)
    changed[1:] = number[1:] != number[:-1]
    changed[::length] = True
    return int(changed.sum())
