"""Features on their sites: norms of any number of rows, sums, and channels side by side."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pcnn.geometry import Geometry
from pcnn.rowwise import batch_norm
from pcnn.tensor import SparseTensor, check_same_sites


class JoinedTensor(SparseTensor):
    """``[N, C_1 + C_2]`` read from two sources, copied only when ``features`` is read.

    A skip connection of a decoder is read twice and then dropped: a convolution that takes both
    sources saves writing and reading the copy. The sources must not change before they are read.
    """

    first: Tensor  # [N, C_1]
    second: Tensor  # [N, C_2], of the dtype and device of first

    def __init__(self, first: Tensor, second: Tensor, geometry: Geometry) -> None:
        # written past the frozen base, which has no field for two sources
        self.__dict__.update(first=first, second=second, geometry=geometry)

    @cached_property
    def features(self) -> Tensor:
        """``[N, C_1 + C_2]``, copied at the first request and kept."""
        return torch.cat([self.first, self.second], dim=1)

    @property
    def is_apart(self) -> bool:
        """True if the features have not been copied together."""
        return "features" not in self.__dict__

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of both sources; asking for the features would copy them."""
        return self.first.dtype

    @property
    def channels(self) -> int:
        """Number of channels C_1 + C_2."""
        return self.first.shape[1] + self.second.shape[1]


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


def normalize(norm: nn.Module, features: Tensor, count: Tensor | None = None) -> Tensor:
    """Apply a norm to features ``[N, C]``, for any N.

    `torch.nn.BatchNorm1d` refuses to train on fewer than two rows, because their variance does not
    exist; here such a batch is normalised with the running statistics and leaves them unchanged.
    `torch.nn.SyncBatchNorm` sees the rows of every rank and is called as it is.

    Args:
        norm: any module on ``[N, C]``.
        features: ``[N, C]``.
        count: ``[1]`` int32 on the device, rows that there are; those behind are in no statistics
            of a batch, and 0 where there are any. ``None``: all rows.

    Raises:
        ValueError: `torch.nn.SyncBatchNorm` with a count.
    """
    trains = isinstance(norm, _BatchNorm) and norm.training
    if count is not None and trains:
        return _counted(norm, features, count)  # type: ignore[arg-type]
    if trains and features.shape[0] < 2 and isinstance(norm, nn.BatchNorm1d):
        own = norm.running_mean, norm.running_var, norm.weight, norm.bias
        return batch_norm(features, *own, eps=norm.eps)
    normalized: Tensor = norm(features)
    return normalized


def _counted(norm: _BatchNorm, features: Tensor, count: Tensor) -> Tensor:
    """Batch norm over the first rows, of which there are at least two; nothing waits."""
    if isinstance(norm, nn.SyncBatchNorm):
        raise ValueError("norms over all devices know of no spare rows; take nn.BatchNorm1d")
    share: float | Tensor = 0.0 if norm.momentum is None else norm.momentum
    if norm.num_batches_tracked is not None:
        with torch.no_grad():
            norm.num_batches_tracked += 1
            if norm.momentum is None:  # the mean of all batches
                share = norm.num_batches_tracked.reciprocal()
    own = norm.running_mean, norm.running_var, norm.weight, norm.bias
    return batch_norm(features, *own, True, share, norm.eps, count=count)
