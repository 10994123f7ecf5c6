"""Normalisation of features: plain `torch.nn` norms, with the cases they refuse made to work."""

from __future__ import annotations

from torch import Tensor, nn


def normalize(norm: nn.Module, features: Tensor) -> Tensor:
    """Apply a norm to features ``[N, C]``, for any N.

    `torch.nn.BatchNorm1d` refuses to train on fewer than two rows, because their variance does not
    exist; here such a batch is normalised with the running statistics and leaves them unchanged.
    `torch.nn.SyncBatchNorm` sees the rows of every rank and is called as it is.

    Args:
        norm: any module on ``[N, C]``.
        features: ``[N, C]``.
    """
    if features.shape[0] < 2 and isinstance(norm, nn.BatchNorm1d) and norm.training:
        return nn.functional.batch_norm(
            features, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )
    normalized: Tensor = norm(features)
    return normalized
