"""The usual dataflow of every device and map."""

from __future__ import annotations

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked, SummedBlocks
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry import KernelMap
from pcnn.geometry.layouts import TABLE_BUDGET_BYTES
from pcnn.geometry.row_lists import MOST_TRIPLETS

# made once: compiled code may name them, but not make them
_BLOCKED, _SUMMED = Blocked(), SummedBlocks()
_TILED = {flag: OutputStationary(sections=False if flag else None) for flag in (False, True)}
_ON_POINTS = RowStationary()
_WHOLE = WeightStationary(half=False)


def usual_dataflow(kernel_map: KernelMap, device: torch.device, reproducible: bool) -> Dataflow:
    """The dataflow of a kernel map on a device.

    Where a slot holds several inputs, as on native points, they are summed while they are gathered;
    a map whose lists of rows int32 cannot count, or whose tiles exceed the memory budget, is read
    pair by pair. A kernel that tiles space has one input a slot on points too.
    """
    one, other = kernel_map.edges.one_per_slot
    if one and other:
        return _TILED[reproducible] if device.type == "cuda" else _BLOCKED
    if device.type != "cuda":
        return _SUMMED
    return _WHOLE if is_huge(kernel_map) and not reproducible else _ON_POINTS


def usual_dataflows(device: torch.device, reproducible: bool) -> tuple[Dataflow, ...]:
    """All that `usual_dataflow` may return on a device; that of voxels comes first."""
    if device.type != "cuda":
        return _BLOCKED, _SUMMED
    return (_TILED[reproducible], _ON_POINTS, *(() if reproducible else (_WHOLE,)))


def is_huge(kernel_map: KernelMap) -> bool:
    """True if lists of rows, of either side, would be refused."""
    edges, triplets = kernel_map.edges, kernel_map.known_triplets or 0
    ranges = 4 * max(edges.rows) * (edges.volume + 1)
    return triplets > MOST_TRIPLETS or ranges > TABLE_BUDGET_BYTES
