"""Rows into padded buffers and products out of them: by Triton kernels, or by torch on any device.

Both classes have the same methods. ``side`` says which rows are gathered: ``in`` those of the
features, ``out`` those of the gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows.padded_buffer import PaddedBuffer, upload
from pcnn.dataflows.torch_sums import accumulator, add_rows, finish
from pcnn.kernels.conv_spec import ConvSpec

Side = Literal["in", "out"]
ByRow = tuple[Tensor, Tensor, Tensor]


class Triplets(NamedTuple):
    """The parts of a kernel map that gather and scatter read."""

    in_index: Tensor  # [T] int32
    out_index: Tensor  # [T] int32
    by_in: ByRow | None = None  # triplets of every input row (pcnn.geometry.layouts.by_in)
    by_out: ByRow | None = None  # the same of output rows
    counts: Tensor | None = None  # [K] int64 on the device, in place of both

    def rows_of(self, side: Side) -> Tensor:
        """Row of every triplet on one side."""
        return self.in_index if side == "in" else self.out_index


@dataclass(frozen=True, eq=False)
class TorchRows:
    """One index operation a slot, in the order of the slots, without atomics."""

    place: PaddedBuffer
    triplets: Triplets
    compute_dtype: torch.dtype

    @property
    def operands(self) -> torch.dtype:
        """Dtype of gathered rows: wide, so that products are not rounded."""
        return accumulator(self.compute_dtype)

    def prepare(self, x: Tensor) -> Tensor:
        """Rows as they are multiplied: rounded to ``compute_dtype``."""
        return x.to(self.compute_dtype).to(self.operands).contiguous()

    def gather(self, x: Tensor, side: Side, buffer: Tensor) -> None:
        """Copy rows of ``x`` to all blocks."""
        index = self.triplets.rows_of(side)
        for block in self.place.blocks:
            for slot in block.slots:
                positions, rows = self._ranges(slot)
                torch.index_select(x, 0, index[positions], out=buffer[rows])

    def scatter(self, products: Tensor, n_out: int, spec: ConvSpec) -> Tensor:
        """Sum all products of every output row, and what follows the sums."""
        sums = products.new_zeros(n_out, products.shape[1])
        for slot in range(len(self.place.shifts)):
            positions, rows = self._ranges(slot)
            add_rows(sums, self.triplets.out_index[positions], products[rows])
        return finish(sums, spec)

    def clear(self, buffer: Tensor) -> None:
        """Write zeros to the padding of all blocks."""
        for first, last in self.place.padding():
            buffer[first:last].zero_()

    def _ranges(self, slot: int) -> tuple[slice, slice]:
        """Positions of a slot in ``pairs``, and its rows in the buffer."""
        place, first = self.place, self.place.first(slot)
        positions = slice(place.offsets[slot], place.offsets[slot + 1])
        return positions, slice(first, first + place.size(slot))


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Triton kernels, all slots in one launch: in the order of the rows, or of the slots."""

    place: PaddedBuffer  # where rows lie
    triplets: Triplets  # of the map
    compute_dtype: torch.dtype  # dtype of gathered rows
    shifts: Tensor  # place.shifts on the device
    gather_tile: int | None  # channels of a program; None for whole rows
    scatter_tile: int | None  # the same of a scatter

    @property
    def operands(self) -> torch.dtype:
        """Dtype of gathered rows."""
        return self.compute_dtype

    def prepare(self, x: Tensor) -> Tensor:
        """Rows as kernels read them; they are rounded while they are gathered."""
        return x.contiguous()

    def gather(self, x: Tensor, side: Side, buffer: Tensor) -> None:
        """Copy rows of ``x`` to all blocks."""
        from pcnn.kernels.gather_scatter import gather, gather_slots

        triplets, skip, tile = self.triplets, self.place.identity, self.gather_tile
        by_row = triplets.by_in if side == "in" else triplets.by_out
        if not self.place.gathered:
            return
        if by_row is not None:
            gather(x, by_row, self.shifts, buffer, skip=skip, tile=tile)
        else:
            assert triplets.counts is not None
            index = triplets.rows_of(side)
            gather_slots(x, index, triplets.counts, self.shifts, buffer, skip=skip, tile=tile)

    def scatter(self, products: Tensor, n_out: int, spec: ConvSpec) -> Tensor:
        """Sum all products of every output row, and what follows the sums.

        In the order of the slots what follows the sums takes a launch of its own, and so does all
        but the sums of float64.
        """
        from pcnn.kernels.epilogue import finish as finish_by_kernel
        from pcnn.kernels.gather_scatter import scatter, scatter_slots

        wide, tile = accumulator(self.compute_dtype), self.scatter_tile
        by_out, counts = self.triplets.by_out, self.triplets.counts
        shape = n_out, products.shape[1]
        if by_out is not None and wide != torch.float64:
            out = products.new_empty(shape, dtype=spec.out_dtype)
            scatter(products, by_out, self.shifts, out, epilogue=spec.epilogue, tile=tile)
            return out
        if by_out is not None:
            sums = products.new_empty(shape, dtype=wide)
            scatter(products, by_out, self.shifts, sums, tile=tile)
        else:
            assert counts is not None
            sums = products.new_zeros(shape, dtype=wide)
            out_index = self.triplets.out_index
            scatter_slots(products, out_index, counts, self.shifts, sums, tile=tile)
        if wide == torch.float64:
            return finish(sums, spec)
        return finish_by_kernel(sums, spec.out_dtype, spec.epilogue)

    def clear(self, buffer: Tensor) -> None:
        """Write zeros to the padding of all blocks, in one launch."""
        from pcnn.kernels.gather_scatter import clear_padding

        ranges = self.place.padding()
        if ranges:
            longest = max(last - first for first, last in ranges)
            clear_padding(upload(ranges, buffer.device), longest, buffer)
