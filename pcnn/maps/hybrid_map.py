"""A kernel map split by slot: near slots as a table, far ones as pairs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HybridMap:
    """Two halves of one kernel map, for a dataflow that treats them differently.

    Slots near the centre are filled often and serve an output-stationary product; far ones are
    mostly empty and serve a weight-stationary one (Spira, section 5.4).

    Args:
        table: ``[N_out, K_dense]`` int32, input row of every dense slot, -1 where it is empty.
        dense_slots: kernel slots of the table's columns, ascending.
        in_index: ``[T]`` int32, input rows of the sparse slots' triplets, by slot.
        out_index: ``[T]`` int32, their output rows, ascending within a slot.
        offsets: ``[K_sparse + 1]`` int64 on the host: triplets of ``sparse_slots[s]`` are
            ``offsets[s]..offsets[s + 1]``.
        sparse_slots: kernel slots of the pairs, ascending.
        n_in: rows of the input geometry.
    """

    table: Tensor
    dense_slots: tuple[int, ...]
    in_index: Tensor
    out_index: Tensor
    offsets: Tensor
    sparse_slots: tuple[int, ...]
    n_in: int

    @property
    def n_out(self) -> int:
        """Rows of the output geometry."""
        return self.table.shape[0]
