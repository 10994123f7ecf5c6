"""Normalisation of features: plain `torch.nn` norms, with the cases they refuse made to work."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def normalize(norm: nn.Module, features: Tensor) -> Tensor:
    """Apply a norm to features ``[N, C]``, for any N.

    `torch.nn.BatchNorm1d` refuses to train on fewer than two rows, because their variance does not
    exist; here such a batch is normalised with the running statistics and leaves them unchanged.
    `torch.nn.SyncBatchNorm` sees the rows of every rank and is called as it is.

    Args:
        norm: any module on ``[N, C]``.
        features: ``[N, C]``.
    """
    plain = isinstance(norm, _BatchNorm) and not isinstance(norm, nn.SyncBatchNorm)
    if plain and norm.training and features.shape[0] < 2 and norm.running_mean is not None:
        return nn.functional.batch_norm(
            features,
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            training=False,
            eps=norm.eps,
        )
    normalized: Tensor = norm(features)
    return normalized
