"""A module that does nothing."""

from __future__ import annotations

from typing import Any

from torch import nn


class Identity(nn.Module):
    """The input is the output."""

    def forward(self, input: Any) -> Any:
        """The input."""
        return input

    def input_spatial_size(self, out_size: Any) -> Any:
        """The size of the input of an output of this size."""
        return out_size
