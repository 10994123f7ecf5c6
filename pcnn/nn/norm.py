"""Normalisation of features: plain `torch.nn` norms, with the cases they refuse made to work."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pcnn.rowwise import batch_norm


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
    if count is not None and isinstance(norm, _BatchNorm) and norm.training:
        return _counted(norm, features, count)
    if features.shape[0] < 2 and isinstance(norm, nn.BatchNorm1d) and norm.training:
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
