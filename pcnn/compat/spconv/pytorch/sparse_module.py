"""The mark of modules that take sparse tensors."""

from __future__ import annotations

from torch import nn


class SparseModule(nn.Module):
    """A module that takes sparse tensors in a `SparseSequential`."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""
