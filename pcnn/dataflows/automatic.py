"""The usual dataflow of every device and map."""

from __future__ import annotations

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked
from pcnn.dataflows.gemm import OutputStationary
from pcnn.dataflows.weight_stationary import WHOLE
from pcnn.geometry import KernelMap
from pcnn.geometry.steps import MOST_TRIPLETS, TABLE_BUDGET_BYTES

# made once: compiled code may name them, but not make them
_BLOCKED = Blocked()
_STEPS, _SECTIONS = OutputStationary(), OutputStationary(sections=True)


def usual_dataflow(kernel_map: KernelMap, device: torch.device, reproducible: bool) -> Dataflow:
    """The dataflow of a kernel map on a device."""
    if device.type != "cuda":
        return _BLOCKED
    if reproducible:
        return _STEPS
    if all(kernel_map.edges.one_per_slot):
        return _SECTIONS
    return WHOLE if is_huge(kernel_map) else _STEPS


def usual_dataflows(device: torch.device, reproducible: bool) -> tuple[Dataflow, ...]:
    """All that `usual_dataflow` may return on a device; that of voxels comes first."""
    if device.type != "cuda":
        return (_BLOCKED,)
    return (_STEPS,) if reproducible else (_SECTIONS, _STEPS, WHOLE)


def is_huge(kernel_map: KernelMap) -> bool:
    """True if ranges of inputs, of either side, would be refused."""
    edges, triplets = kernel_map.edges, kernel_map.known_triplets or 0
    ranges = 4 * max(edges.rows) * (edges.volume + 1)
    return triplets > MOST_TRIPLETS or ranges > TABLE_BUDGET_BYTES
