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


def weighted_similarity(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Transform that minimises ``sum_m w_m |s R p_m + t - q_m|²``, the scale ``s`` included.

    The rotation is that of `weighted_svd`; with it ``s = sum_m w_m (R p_m)·q_m / sum_m w_m |p_m|²``
    about the weighted means.

    Source: Umeyama 1991 (Eqs. 40-43).

    Args:
        source: [M, 3].
        target: [M, 3].
        weight: [M] not negative; None weighs all alike.

    Returns:
        [4, 4] of the dtype of the points: its linear part is ``s R``.
    """
    weight = torch.ones_like(source[:, 0]) if weight is None else weight
    share = (weight / weight.sum().clamp(min=1e-12))[:, None]  # [M, 1]
    middle_source, middle_target = (share * source).sum(0), (share * target).sum(0)
    rotation = weighted_svd(source, target, weight)[:3, :3]
    centred = source - middle_source
    along = (share * (centred @ rotation.mT) * (target - middle_target)).sum()
    scale = along / (share * centred.square()).sum().clamp(min=1e-12)
    return assembled(scale * rotation, middle_target - scale * rotation @ middle_source)
