"""The quickest dataflow of every device."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked
from pcnn.dataflows.by_table import ByTable
from pcnn.dataflows.output_stationary import OutputStationary


@dataclass(frozen=True)
class Automatic:
    """Stands for a dataflow wherever an engine names one, and is resolved by device.

    Args:
        reproducible: only what gives identical bits in two runs. On a GPU large kernels on sparse
            clouds are then walked in one order of rows, which takes two to three times as long.
    """

    reproducible: bool = False
    name: str = "automatic"

    def on(self, device: torch.device) -> Dataflow:
        """The dataflow for tensors of a device."""
        return _on(device.type, self.reproducible)


@functools.cache
def _on(device_type: str, reproducible: bool) -> Dataflow:
    if device_type != "cuda":
        return Blocked()
    return ByTable(OutputStationary(sections=False if reproducible else None))
