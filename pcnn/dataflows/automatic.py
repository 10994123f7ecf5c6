"""The quickest dataflow of every device, for maps of voxels and of native points."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked, SummedBlocks
from pcnn.dataflows.by_table import ByTable
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import TABLE_BUDGET_BYTES
from pcnn.geometry.row_lists import MOST_TRIPLETS


@dataclass(frozen=True)
class Automatic:
    """Stands for a dataflow wherever an engine names one, and is resolved by device.

    Args:
        reproducible: only what gives identical bits in two runs. On a GPU large kernels on sparse
            clouds are then walked in one order of rows, which takes two to three times as long,
            and maps too large for row lists are refused.
    """

    reproducible: bool = False
    name: str = "automatic"

    @property
    def possible(self) -> tuple[Dataflow, ...]:
        """Whatever the other methods may return."""
        return (_BLOCKED, _SUMMED, *self.possible_on(torch.device("cuda")))

    def possible_on(self, device: torch.device) -> tuple[Dataflow, ...]:
        """Whatever the other methods may return on a device."""
        usual = self.on(device)
        return (usual, _ON_POINTS, _WHOLE) if device.type == "cuda" else (usual, _SUMMED)

    def on(self, device: torch.device) -> Dataflow:
        """The dataflow for voxels on a device: maps with at most one input in a slot."""
        return _on(device.type, self.reproducible)

    def for_map(self, device: torch.device, kernel_map: KernelMap) -> Dataflow:
        """The dataflow for a kernel map on a device.

        Where a slot holds several inputs, as on native points, they are summed while they are
        gathered; a map whose lists of rows int32 cannot count, or whose tiles exceed the memory
        budget, is read pair by pair. A kernel that tiles space has one input a slot on points too.

        Args:
            device: where it is computed.
            kernel_map: the map, from either side.
        """
        if all(kernel_map.edges.one_per_slot):
            return _on(device.type, self.reproducible)
        if device.type != "cuda":
            return _SUMMED
        return _WHOLE if is_huge(kernel_map) and not self.reproducible else _ON_POINTS


def _on(device_type: str, reproducible: bool) -> Dataflow:
    return _TILED[reproducible] if device_type == "cuda" else _BLOCKED


# made once: code that is compiled may name them, but not make them
_BLOCKED, _SUMMED = Blocked(), SummedBlocks()
_TILED = {
    flag: ByTable(OutputStationary(sections=False if flag else None)) for flag in (False, True)
}
_ON_POINTS = ByTable(RowStationary())
_WHOLE = WeightStationary(half=False)


def is_huge(kernel_map: KernelMap) -> bool:
    """Whether lists of rows, of either side, would be refused."""
    edges, triplets = kernel_map.edges, kernel_map.known_triplets or 0
    ranges = 4 * max(edges.rows) * (edges.volume + 1)
    return triplets > MOST_TRIPLETS or ranges > TABLE_BUDGET_BYTES
