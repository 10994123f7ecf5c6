"""Branches of a network, and their joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from pcnn.compat.spconv.pytorch.core import SparseConvTensor
from pcnn.compat.spconv.pytorch.functional import sparse_add
from pcnn.compat.spconv.pytorch.sparse_module import SparseModule, require


class _Table(SparseModule):
    def input_spatial_size(self, out_size: Any) -> Any:
        """The size of the input of an output of this size."""
        return out_size


class JoinTable(_Table):
    """Channels of tensors on the same rows side by side."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        """``[N, C_1 + C_2 + ...]``."""
        _check_rows(input)
        return input[0].replace_feature(torch.cat([each.features for each in input], 1))


class AddTable(_Table):
    """Sum of tensors on the same rows."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        """``[N, C]``."""
        _check_rows(input)
        return input[0].replace_feature(torch.stack([each.features for each in input]).sum(0))


class AddTableMisaligned(_Table):
    """Sum of tensors on different sites."""

    def forward(self, input: Sequence[SparseConvTensor]) -> SparseConvTensor:
        """See `sparse_add`."""
        return sparse_add(*input)


class ConcatTable(_Table):
    """Each module on the same input."""

    def forward(self, input: Any) -> list[Any]:
        """A list of what they give."""
        return [module(input) for module in self._modules.values()]  # type: ignore[misc]

    def add(self, module: nn.Module) -> ConcatTable:
        """Append a module."""
        self.add_module(str(len(self._modules)), module)
        return self

    def input_spatial_size(self, out_size: Any) -> Any:
        """As the first module says."""
        return self._modules["0"].input_spatial_size(out_size)  # type: ignore[union-attr,operator]


def _check_rows(tensors: Sequence[SparseConvTensor]) -> None:
    """Refuse tensors that are not on the same rows, as far as their shapes tell."""
    first = tensors[0]
    for position, each in enumerate(tensors):
        alike = each.spatial_shape == first.spatial_shape and each.batch_size == first.batch_size
        require(
            alike and each.features.shape == first.features.shape,
            f"tensor {position} has {list(each.features.shape)} features in a volume "
            f"{each.spatial_shape}, tensor 0 {list(first.features.shape)} in "
            f"{first.spatial_shape}; sparse_add adds over different sites",
        )
