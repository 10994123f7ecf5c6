"""Any `torch.nn` module on the features of a sparse tensor, and joins of two tensors."""

from __future__ import annotations

import torch
from torch import nn

from pcnn.nn.joined import JoinedTensor
from pcnn.nn.norm import normalize
from pcnn.tensor import SparseTensor, check_same_sites, require_sparse


class FeatureWise(nn.Module):
    """Apply a module that maps ``[N, C]`` to ``[N, C']``: linear, norm, activation, dropout.

    The module inside stays a plain `torch.nn` module, so that conversion to `SyncBatchNorm`,
    weight decay rules and pruning find what they look for.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Features ``[N, C]`` to ``[N, C']`` on the same sites."""
        if type(x) is not SparseTensor:
            require_sparse(x, self)
        return x.replace(normalize(self.module, x.features, x.geometry.count))


def cat(*tensors: SparseTensor) -> SparseTensor:
    """Join the channels of tensors on one geometry: ``[N, C_1 + C_2 + ...]``.

    Without gradients two tensors are not copied but read where they lie (`JoinedTensor`) by the
    layers that can, and copied at the first request for ``features`` by everything else; do not
    change them in place before that.

    Raises:
        ValueError: no tensor, or tensors on different geometries.
    """
    check_same_sites(*tensors)
    if len(tensors) == 2 and not torch.is_grad_enabled():
        first, second = (tensor.features for tensor in tensors)
        if first.dtype == second.dtype:
            return JoinedTensor(first, second, tensors[0].geometry)
    return tensors[0].replace(torch.cat([tensor.features for tensor in tensors], dim=1))


def add(first: SparseTensor, second: SparseTensor) -> SparseTensor:
    """Sum of two tensors on one geometry: ``first + second``.

    Raises:
        ValueError: tensors on different geometries.
    """
    check_same_sites(first, second)
    return first.replace(first.features + second.features)
