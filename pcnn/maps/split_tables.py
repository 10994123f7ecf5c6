"""Near and far slots of maps with a table, in memory of fixed size: a bound for the far pairs."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap
from pcnn.geometry.kernel_map import outside_inference_mode
from pcnn.geometry.layouts import is_halved, layout_kind, slots_on, split_slots, threshold_of
from pcnn.maps.pairs import list_table, places_in_table

#: Layouts that are made here, without their thresholds.
SPLIT = ("hybrid", "half_pairs")


def is_split(name: str) -> bool:
    """True for the name of a layout that lists some slots or all of them, and no order of rows."""
    return layout_kind(name).name in SPLIT


def listed_slots(kernel: Kernel, symmetric: bool, names: Iterable[str]) -> tuple[int, ...]:
    """Slots whose pairs some of these layouts list, ascending."""
    slots = {
        slot for name in names if is_split(name) for slot in _split(kernel, symmetric, name)[1]
    }
    return tuple(sorted(slots))


def _split(kernel: Kernel, symmetric: bool, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Slots of the table of a layout, and those that are listed: of symmetric maps the first."""
    setting = "0" if name == "half_pairs" else name.partition(":")[2]
    dense, sparse = split_slots(kernel.norms, threshold_of(setting, kernel.norms))
    if symmetric and (dense or name == "half_pairs"):
        sparse = sparse[: len(sparse) // 2]
    return dense, sparse


class SplitTables:
    """Writes the layouts ``hybrid:<t>`` and ``half_pairs`` of one batch after another."""

    def __init__(self) -> None:
        self._slots: dict[tuple[Kernel, bool, str, torch.device], tuple[Tensor, Tensor]] = {}

    def add(
        self,
        built: KernelMap,
        kernel: Kernel,
        names: Iterable[tuple[str, bool]],
        room: int | None = None,
    ) -> None:
        """Give a map layouts of either side, with room for so many pairs."""
        for name, flipped in names:
            self._add(built.transpose() if flipped else built, kernel, name, room)

    def _add(self, view: KernelMap, kernel: Kernel, name: str, room: int | None) -> None:
        (table,) = view.layout("table")
        dense, sparse = self._slots_of(kernel, is_halved(view), name, table.device)
        if view.transpose().has(name):  # the same pairs read backwards
            there = view.transpose().layout(name)
            *_, out_index, in_index, counts = there[:5]
        else:
            in_index, out_index, counts = self._listed(view, table, sparse, room)
        layout: tuple[Tensor, ...] = in_index, out_index, counts
        if name != "half_pairs":
            columns = table.index_select(1, dense) if len(dense) < view.volume else table
            layout = columns, dense, *layout, sparse
        view.edges.layouts[name, view.flipped] = layout

    def _listed(
        self, view: KernelMap, table: Tensor, sparse: Tensor, room: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        counts = torch.empty(len(sparse), dtype=torch.int64, device=table.device)
        if not len(sparse):
            none = torch.empty(0, dtype=torch.int32, device=table.device)
            return none, none, counts
        far = table.index_select(1, sparse) if len(sparse) < view.volume else table
        if room is None:
            fine, coarse = view.edges.rows
            room = min(fine, len(sparse) * coarse)
        return *list_table(far, places_in_table(far, counts, room), room), counts

    def _slots_of(
        self, kernel: Kernel, halved: bool, name: str, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        key = kernel, halved, name, device
        if key not in self._slots:
            with outside_inference_mode():
                dense, sparse = (slots_on(s, device) for s in _split(kernel, halved, name))
            self._slots[key] = dense, sparse
        return self._slots[key]
