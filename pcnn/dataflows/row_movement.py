"""Rows into padded buffers and products out of them: by Triton kernels, or by torch on any device.

Both classes have the same methods. ``side`` says which rows are gathered: ``in`` those of the
features, ``out`` those of the gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows.padded_buffer import Block, PaddedBuffer
from pcnn.dataflows.placement import upload
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
    counts: Tensor | None = None  # [K] int64 on the device, where it is needed

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
        for block in self.place.blocks:
            self.gather_block(x, side, buffer[block.start : block.end], block)

    def gather_block(self, x: Tensor, side: Side, buffer: Tensor, block: Block) -> None:
        """Copy rows of ``x`` to one block, which ``buffer`` holds alone."""
        index = self.triplets.rows_of(side)
        for slot in block.slots:
            positions, rows = _ranges(self.place, slot, block.start)
            torch.index_select(x, 0, index[positions], out=buffer[rows])

    def sums(self, n_out: int, channels: int, device: torch.device) -> Tensor:
        """Zeros ``[n_out, channels]`` that products are added to."""
        return torch.zeros(n_out, channels, dtype=self.operands, device=device)

    def scatter(self, products: Tensor, n_out: int, spec: ConvSpec) -> Tensor:
        """Sum all products of every output row, and what follows the sums."""
        sums = self.sums(n_out, products.shape[1], products.device)
        for slot in range(len(self.place.shifts)):
            self._add(products, slot, 0, sums)
        return self.finish(sums, spec)

    def scatter_block(self, products: Tensor, block: Block, sums: Tensor) -> None:
        """Add the products of one block, which ``products`` holds alone."""
        for slot in block.slots:
            self._add(products, slot, block.start, sums)

    def finish(self, sums: Tensor, spec: ConvSpec) -> Tensor:
        """The epilogue of the sums, and their rounding."""
        return finish(sums, spec)

    def _add(self, products: Tensor, slot: int, start: int, sums: Tensor) -> None:
        positions, rows = _ranges(self.place, slot, start)
        add_rows(sums, self.triplets.out_index[positions], products[rows])

    def clear(self, buffer: Tensor) -> None:
        """Write zeros to the padding of all blocks."""
        for first, last in self.place.padding():
            buffer[first:last].zero_()


@dataclass(frozen=True, eq=False)
class KernelRows:
    """Triton kernels: the row's order or the slots', 16 bytes or one channel a thread."""

    place: PaddedBuffer  # where rows lie
    triplets: Triplets  # of the map
    compute_dtype: torch.dtype  # dtype of gathered rows
    shifts: Tensor  # place.shifts on the device
    vectorised: bool  # whether threads move 16 bytes at once
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
        """Copy rows of ``x`` to all blocks, in one launch."""
        triplets = self.triplets
        by_row = triplets.by_in if side == "in" else triplets.by_out
        skip, how = self.place.identity, (self.gather_tile, self.vectorised)
        if not self.place.gathered:
            return
        if by_row is not None:
            from pcnn.kernels.gather_scatter import gather

            gather(x, by_row, self.shifts, buffer, skip=skip, tile=how[0], vectorised=how[1])
        else:
            from pcnn.kernels.gather_scatter_slots import gather_slots

            assert triplets.counts is not None
            index = triplets.rows_of(side)
            lists = index, triplets.counts, self.shifts
            gather_slots(x, *lists, buffer, skip=skip, tile=how[0], vectorised=how[1])

    def gather_block(self, x: Tensor, side: Side, buffer: Tensor, block: Block) -> None:
        """Copy rows of ``x`` to one block, which ``buffer`` holds alone, a slot a launch."""
        from pcnn.kernels.gather_scatter_slots import gather_slots

        assert self.triplets.counts is not None
        lists = self.triplets.rows_of(side), self.triplets.counts, self.shifts
        for slot in block.slots:
            part = _part(self.place, slot, block.start)
            tile, vectorised = self.gather_tile, self.vectorised
            gather_slots(x, *lists, buffer, part=part, tile=tile, vectorised=vectorised)

    def sums(self, n_out: int, channels: int, device: torch.device) -> Tensor:
        """Zeros ``[n_out, channels]`` that products are added to, float32 or float64."""
        return torch.zeros(n_out, channels, dtype=accumulator(self.compute_dtype), device=device)

    def scatter(self, products: Tensor, n_out: int, spec: ConvSpec) -> Tensor:
        """Sum all products of every output row, and what follows the sums, in one launch.

        In the order of the slots what follows the sums takes another.
        """
        tile, vectorised = self.scatter_tile, self.vectorised
        if self.triplets.by_out is None:
            from pcnn.kernels.gather_scatter_slots import scatter_slots

            assert self.triplets.counts is not None
            sums = self.sums(n_out, products.shape[1], products.device)
            lists_of_slots = self.triplets.out_index, self.triplets.counts, self.shifts
            scatter_slots(products, *lists_of_slots, sums, tile=tile, vectorised=vectorised)
            return self.finish(sums, spec)
        from pcnn.kernels.gather_scatter import scatter

        wide = self.compute_dtype == torch.float64  # what kernels do behind the sums is float32
        epilogue, dtype = (None, torch.float64) if wide else (spec.epilogue, spec.out_dtype)
        out = products.new_empty(n_out, products.shape[1], dtype=dtype)
        lists = self.triplets.by_out, self.shifts
        scatter(products, *lists, out, epilogue=epilogue, tile=tile, vectorised=vectorised)
        return finish(out, spec) if wide else out

    def finish(self, sums: Tensor, spec: ConvSpec) -> Tensor:
        """The epilogue of the sums, and their rounding."""
        if sums.dtype == torch.float64:
            return finish(sums, spec)
        from pcnn.kernels.epilogue import finish as finish_by_kernel

        return finish_by_kernel(sums, spec.out_dtype, spec.epilogue)

    def scatter_block(self, products: Tensor, block: Block, sums: Tensor) -> None:
        """Add the products of one block, which ``products`` holds alone, a slot a launch."""
        from pcnn.kernels.gather_scatter_slots import scatter_slots

        assert self.triplets.counts is not None
        lists = self.triplets.out_index, self.triplets.counts, self.shifts
        for slot in block.slots:
            part = _part(self.place, slot, block.start)
            tile, vectorised = self.scatter_tile, self.vectorised
            scatter_slots(products, *lists, sums, part=part, tile=tile, vectorised=vectorised)

    def clear(self, buffer: Tensor) -> None:
        """Write zeros to the padding of all blocks, in one launch."""
        from pcnn.kernels.gather_scatter_slots import clear_padding

        ranges = self.place.padding()
        if ranges:
            longest = max(last - first for first, last in ranges)
            clear_padding(upload(ranges, buffer.device), longest, buffer)


def _ranges(place: PaddedBuffer, slot: int, start: int) -> tuple[slice, slice]:
    """Positions of a slot in ``pairs``, and its rows in a buffer that begins at row ``start``."""
    first = place.first(slot) - start
    positions = slice(place.offsets[slot], place.offsets[slot + 1])
    return positions, slice(first, first + place.size(slot))


def _part(place: PaddedBuffer, slot: int, start: int) -> tuple[int, int, int]:
    """First and one-past-last position of a slot, and its shift in a buffer from row ``start``."""
    return place.offsets[slot], place.offsets[slot + 1], place.shifts[slot] - start
