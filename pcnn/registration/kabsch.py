"""Rigid transforms that fit matched points best."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.transforms import assembled


def weighted_svd(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Transform that minimises ``sum_m w_m |R p_m + t - q_m|²``.

    Differentiable; the rotation is proper (determinant 1) also where the points are coplanar or
    mirrored.

    Source: Kabsch 1976, Umeyama 1991 (Eqs. 40-43, without scale).

    Args:
        source: [..., M, 3].
        target: [..., M, 3].
        weight: [..., M] not negative; None weighs all alike. Where all are zero the result is the
            translation by nothing, the identity: callers check for it.

    Returns:
        [..., 4, 4] of the dtype of the points.
    """
    if weight is None:
        weight = torch.ones_like(source[..., 0])
    share = (weight / weight.sum(-1, keepdim=True).clamp(min=1e-12))[..., None]  # [..., M, 1]
    middle_source = (share * source).sum(-2, keepdim=True)
    middle_target = (share * target).sum(-2, keepdim=True)
    covariance = (share * (source - middle_source)).mT @ (target - middle_target)  # [..., 3, 3]
    u, _, vt = torch.linalg.svd(covariance)
    sign = torch.linalg.det(vt.mT @ u.mT).sign()
    # the last axis is turned round where U and V form a mirror image
    flip = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], -1)
    rotation = (vt.mT * flip[..., None, :]) @ u.mT
    translation = middle_target.squeeze(-2) - (rotation @ middle_source.mT).squeeze(-1)
    return assembled(rotation, translation)
