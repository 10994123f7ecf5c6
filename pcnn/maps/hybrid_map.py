"""Kernel maps of which a part of the slots is stored in a way of its own (Spira, section 5.4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import KernelMap
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.layouts import Layout
from pcnn.geometry.slot_subsets import slots_on
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.table_to_pairs import Pairs, pairs_from_table, table_from_pairs, transposed_table


@dataclass(frozen=True)
class HybridMap:
    """Two parts of one kernel map, for a dataflow that treats them differently.

    Slots near the centre are filled often and serve an output-stationary product; far ones are
    mostly empty and serve a weight-stationary one.
    """

    table: Tensor  # [N_out, D] int32, input row of every dense slot, -1 where it is empty
    dense_slots: tuple[int, ...]  # kernel slots of the table's columns, ascending
    in_index: Tensor  # [T] int32, input rows of the listed sparse slots' triplets, by slot
    out_index: Tensor  # [T] int32, their output rows, ascending within a slot
    offsets: Tensor
    sparse_slots: tuple[int, ...]  # kernel slots of the pairs, ascending
    n_in: int  # rows of the input geometry
    #: only half of the sparse slots is listed: (i, j) of slot k is (j, i) of slot K - 1 - k too
    mirrored: bool = False

    @property
    def n_out(self) -> int:
        """Rows of the output geometry."""
        return self.table.shape[0]

    @property
    def volume(self) -> int:
        """Number of kernel slots K."""
        return len(self.dense_slots) + (1 + self.mirrored) * len(self.sparse_slots)

    def layout(self) -> Layout:
        """Tensors of the layout ``hybrid``; see `pcnn.geometry.slot_subsets.hybrid`."""
        dense, sparse = self._on_device(self.dense_slots), self._on_device(self.sparse_slots)
        counts = self.offsets.diff().to(dense.device, non_blocking=True)
        return self.table, dense, self.in_index, self.out_index, counts, sparse

    def _on_device(self, slots: tuple[int, ...]) -> Tensor:
        return slots_on(slots, self.table.device)

    def whole_table(self) -> Tensor:
        """Neighbour table ``[N_out, K]`` int32 of all slots."""
        table = self.table.new_empty(self.n_out, self.volume)
        table.index_copy_(1, self._on_device(self.dense_slots).long(), self.table)
        lists = self.in_index, self.out_index
        far = self._on_device(self.sparse_slots).long()
        table.index_copy_(1, far, table_from_pairs(*lists, self.offsets, self.n_out))
        if self.mirrored:
            opposite = table_from_pairs(*lists[::-1], self.offsets, self.n_out)
            table.index_copy_(1, self.volume - 1 - far, opposite)
        return table

    def kernel_map(
        self, product: str, symmetric: bool, there: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> KernelMap:
        """Kernel map that holds this as a layout; others are derived from it."""

        def table(view: KernelMap) -> Layout:
            if not view.flipped:
                return (self.whole_table(),)
            (forward,) = view.transpose().layout("table")
            return (forward.flip(1) if symmetric else transposed_table(forward, self.n_in),)

        def pairs(view: KernelMap) -> Layout:
            if not view.flipped:
                return pairs_from_table(view.layout("table")[0])
            out_index, in_index, offsets = view.transpose().layout("pairs")
            return in_index, out_index, offsets

        derive: dict[str, Callable[[KernelMap], Layout]] = {
            **DEVICE_LAYOUTS,
            "table": table,
            "pairs": pairs,
        }
        edges = EdgeSet((self.n_in, self.n_out), self.volume, (True, True), symmetric, derive)
        if there is None:
            layout = self.layout()
        else:
            dense, sparse, counts = there
            layout = self.table, dense, self.in_index, self.out_index, counts, sparse
        edges.layouts[product, False] = layout
        return KernelMap(edges)


def map_of_half(pairs: Pairs, rows: int, counts: Tensor | None = None) -> KernelMap:
    """Kernel map of the first K // 2 slots; what else is asked for is derived from them."""
    in_index, out_index, offsets = pairs
    slots, half = offsets.shape[0] - 1, int(offsets[-1])
    mirrored = 2 * half + rows - offsets.flip(0)  # the central slot holds every row
    derive: dict[str, Callable[[KernelMap], Layout]] = {**DEVICE_LAYOUTS, "pairs": _pairs_of_half}
    edges = EdgeSet((rows, rows), 2 * slots + 1, (True, True), True, derive)
    if counts is None:
        counts = offsets.diff().to(in_index.device, non_blocking=True)
    edges.layouts["half_pairs", False] = in_index, out_index, counts
    for flipped in (False, True):
        edges.layouts["offsets", flipped] = (torch.cat((offsets, mirrored)),)
    return KernelMap(edges)


def _pairs_of_half(kernel_map: KernelMap) -> Layout:
    """Layout ``pairs``: the half that is stored, the central slot, and the half that mirrors it."""
    other = kernel_map.transpose()
    if other.has("pairs"):
        out_index, in_index, offsets = other.layout("pairs")
        return in_index, out_index, offsets
    in_index, out_index, _ = kernel_map.layout("half_pairs")
    (offsets,) = kernel_map.layout("offsets")
    sizes = offsets[: kernel_map.volume // 2 + 1].diff().tolist()
    inputs, outputs = in_index.split(sizes), out_index.split(sizes)
    every = torch.arange(kernel_map.n_out, dtype=torch.int32, device=in_index.device)

    def joined(first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Tensor:
        return torch.cat((*first, every, *reversed(second)))

    return joined(inputs, outputs), joined(outputs, inputs), offsets
