"""Points in the order of their cells, by one sort of whole numbers on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pcnn.geometry.kernel_slots import Triple
from pcnn.geometry.packing import KeyFormat

#: Bits of the whole numbers that float64 holds exactly.
_EXACT_BITS = 53
#: Bits of a number that is sorted, its sign left out.
_BITS = 63


@dataclass(frozen=True, eq=False)
class CellOrder:
    """Points by (batch, x, y, z), as they came within a cell."""

    cells: Tensor  # [P] int64, rising, equal for points of one cell
    order: Tensor  # [P] int64, the points
    low: Triple  # lowest cell of the box that they are counted in
    bits: Triple  # of x, y and z in that box

    def merged(self) -> tuple[Tensor, Tensor]:
        """One number a cell ``[N]``, and the row ``[P]`` int64 of every point among them."""
        cells = self.cells.numpy()
        begins = np.ones(len(cells), np.bool_)
        np.not_equal(cells[1:], cells[:-1], out=begins[1:])
        ranks = torch.from_numpy(begins).cumsum(0).sub_(1)
        inverse = torch.empty_like(self.order).scatter_(0, self.order, ranks)
        # numpy finds places and takes them in a third of the time of torch's masked_select
        return torch.from_numpy(cells[np.flatnonzero(begins)]), inverse

    def keys(self, cells: Tensor, key_format: KeyFormat) -> Tensor:
        """Packed keys of some of the cells, ``[M]`` int64."""
        numbers = cells.numpy()
        keys = numbers >> sum(self.bits) << key_format.batch_shift
        below, least = sum(self.bits), 0
        for bits, low, half, shift in zip(
            self.bits, self.low, key_format.half, key_format.shifts, strict=True
        ):
            below -= bits
            keys += (numbers >> below & (1 << bits) - 1) << shift
            least += low + half << shift
        keys += least
        return torch.from_numpy(keys)


def cell_order(
    cells: Tensor, batch: Tensor | None, clouds: int, box: tuple[Triple, Triple]
) -> CellOrder | None:
    """Sort points by their cells, on the host.

    A point is one number: its cloud and its cell within the box, then its own place. Sorting these
    takes a fifth of the time of sorting keys with the points beside them.
    """
    low, high = box
    bits = tuple((b - a).bit_length() for a, b in zip(low, high, strict=True))
    own, reach = len(cells).bit_length(), max(map(abs, (*low, *high))).bit_length()
    exact = reach + bits[1] + bits[2] + 2 <= _EXACT_BITS
    if cells.device.type != "cpu" or not exact or sum(bits) + clouds.bit_length() + own > _BITS:
        return None
    weights = [1 << bits[1] + bits[2], 1 << bits[2], 1]
    first = sum(a * weight for a, weight in zip(low, weights, strict=True))
    # products and sums are whole numbers that float64 holds, in whatever order they are added
    places = cells.to(torch.float64) @ torch.tensor(weights, dtype=torch.float64)
    numbers = places.to(torch.int64).sub_(first)
    if batch is not None:
        numbers += batch.to(torch.int64) << sum(bits)
    numbers <<= own
    numbers |= torch.arange(len(cells))
    numbers.numpy().sort()
    return CellOrder(numbers >> own, numbers & (1 << own) - 1, low, (bits[0], bits[1], bits[2]))
