"""The largest number of output sites of a layer, in a buffer of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

#: The buffer's name, as in spconv.
NAME = "max_num_voxels_during_training"


class VoxelCount:
    """Keeps the buffer ``[1]`` int32 of a layer."""

    def __init__(self, layer: nn.Module, device: torch.device | str | None = None) -> None:
        layer.register_buffer(NAME, torch.zeros(1, dtype=torch.int32, device=device))
        self._layer = [layer]  # in a list: a module would take it for a part of itself

    @property
    def buffer(self) -> Tensor:
        """``[1]`` int32, the largest number so far."""
        return self._layer[0].get_buffer(NAME)

    def add(self, sites: int) -> None:
        """Take a number of sites into account."""
        self.buffer.clamp_(min=sites)

    def complete(self, state: Mapping[str, Any], prefix: str) -> None:
        """Add the buffer to a state that has none: checkpoints of layers that did not count."""
        if isinstance(state, dict):
            state.setdefault(prefix + NAME, torch.zeros(1, dtype=torch.int32))
