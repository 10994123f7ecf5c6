"""The quickest dataflow of every device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pcnn.dataflows.base import Dataflow
from pcnn.dataflows.blocked import Blocked


@dataclass(frozen=True)
class Automatic:
    """Stands for a dataflow wherever an engine names one, and is resolved by device."""

    name: str = "automatic"

    def on(self, device: torch.device) -> Dataflow:
        """The dataflow for tensors of a device."""
        return Blocked()
