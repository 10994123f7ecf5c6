"""Sums over pairs listed by slot and over tables of some slots, in plain torch.

What `WeightStationary` and `Hybrid` mean: any device, any float dtype. Kernels take their place
where tensor cores serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.reference import accumulator, join, multiply, per_group


@dataclass(frozen=True)
class PlainSums:
    """Operands of a product in the dtype that its sums are kept in.

    Args:
        rows: ``[N_in, C_in]``, rounded to the compute dtype.
        matrices: ``[K, G, C_in / G, C_out / G]``, in the order in which slots multiply.
        sums: ``[N_out, C_out]``, added to.
    """

    rows: Tensor
    matrices: Tensor
    sums: Tensor

    @classmethod
    def of(
        cls,
        x: Tensor,
        second: Tensor | None,
        weight: Tensor,
        n_out: int,
        groups: int,
        transposed: bool,
        mirrored: bool,
        compute_dtype: torch.dtype,
    ) -> PlainSums:
        """Round the operands, and begin with zeros; arguments as of `Dataflow.mvmr`."""
        dtype = accumulator(compute_dtype)
        rows = join(x, second).to(compute_dtype).to(dtype)
        matrices = per_group(weight.to(compute_dtype).to(dtype), groups)
        matrices = matrices.transpose(2, 3) if transposed else matrices
        matrices = matrices.flip(0) if mirrored else matrices
        return cls(rows, matrices, rows.new_zeros(n_out, groups * matrices.shape[3]))

    def add_centre(self) -> None:
        """Add the product of the central slot, at which row i meets row i."""
        self.sums.add_(multiply(self.rows, self.matrices[len(self.matrices) // 2]))

    def add_table(self, table: Tensor, slots: Tensor) -> None:
        """Add the products of slots whose inputs a table names.

        Args:
            table: ``[N_out, D]`` int32, -1 where a slot is empty.
            slots: ``[D]`` int32, slots of the columns.
        """
        for column, slot in zip(table.unbind(1), slots.tolist(), strict=True):
            gathered = self.rows.index_select(0, column.clamp_min(0)) if len(self.rows) else None
            if gathered is not None:
                gathered.masked_fill_((column < 0)[:, None], 0)
                self.sums.add_(multiply(gathered, self.matrices[slot]))

    def add_pairs(
        self, in_index: Tensor, out_index: Tensor, counts: Tensor, slots: Tensor | None, both: bool
    ) -> None:
        """Add the products of listed pairs; waits for the device.

        Args:
            in_index: ``[T]`` int32, rows j, by slot.
            out_index: ``[T]`` int32, rows i.
            counts: ``[S]`` int64, pairs of every listed slot.
            slots: ``[S]`` int32, the listed slots; ``None``: the first S.
            both: whether (i, j) of slot k also stands for (j, i) of slot K - 1 - k.
        """
        sizes = counts.tolist()
        numbers = range(len(sizes)) if slots is None else slots.tolist()
        lists = in_index.split(sizes), out_index.split(sizes)
        for slot, inputs, outputs in zip(numbers, *lists, strict=True):
            self._add(inputs, outputs, slot)
            if both:
                self._add(outputs, inputs, len(self.matrices) - 1 - slot)

    def _add(self, inputs: Tensor, outputs: Tensor, slot: int) -> None:
        product = multiply(self.rows.index_select(0, inputs), self.matrices[slot])
        self.sums.index_add_(0, outputs, product)
