"""Errors of an estimated transform against the true one, and of matches under the true one."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.rigid_fit import quaternion_vector
from pcnn.registration.transforms import inverse, rotation_angle, transform_points


def rotation_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """Relative rotation error (RRE): the angle of ``R_trueᵀ R_est``, in degrees."""
    return rotation_angle(truth[..., :3, :3].mT @ estimate[..., :3, :3])


def translation_error(estimate: Tensor, truth: Tensor) -> Tensor:
    """Relative translation error (RTE): ``|t_est - t_true|`` in the target's frame, in metres.

    Not the error at the sensor, nor the mean displacement of points.
    """
    return (estimate[..., :3, 3] - truth[..., :3, 3]).norm(dim=-1)


def information_rmse(estimate: Tensor, truth: Tensor, information: Tensor) -> Tensor:
    """RMSE of the true correspondences under an estimate, by their information matrix, in metres.

    ``sqrt(ξᵀ I ξ / I₀₀)`` with ``E = T_true⁻¹ T_est`` and ``ξ = (t, vector part of E's
    quaternion)``; ``I₀₀`` is the number of correspondences. The vector part is
    ``sin(angle / 2) axis``, half of what a rotation moves the points by; that is the benchmark's
    definition.

    A matrix whose first entry is not positive states no correspondences: nothing can be judged,
    and the result is NaN, which no threshold accepts.

    Source: Choi, Zhou, Koltun 2015 (Redwood), Eq. 13, and the 3DMatch benchmark's evaluator.
    """
    error = inverse(truth) @ estimate
    known = torch.isfinite(error).flatten(-2).all(-1)
    # the eigenvectors of NaN raise
    safe = torch.where(known[..., None, None], error, torch.eye(4).to(error))
    xi = torch.cat([safe[..., :3, 3], quaternion_vector(safe[..., :3, :3])], -1)  # [..., 6]
    square = torch.einsum("...i,...ij,...j->...", xi, information, xi)
    count = information[..., 0, 0]
    nan = torch.full_like(square, torch.nan)
    square = torch.where(known & (count > 0), square / count.clamp(min=1e-300), nan)
    return square.clamp(min=0).sqrt()  # rounding may leave -1e-18


def point_rmse(estimate: Tensor, truth: Tensor, points: Tensor) -> Tensor:
    """Root mean square distance between where two transforms put points, in metres."""
    moved = transform_points(estimate, points) - transform_points(truth, points)
    return moved.square().sum(-1).mean().sqrt()


def match_distances(source: Tensor, target: Tensor, truth: Tensor) -> Tensor:
    """Distance of every match's two points under the true transform, in metres."""
    moved = transform_points(truth.to(source.device).double(), source.double())
    return (moved - target.double()).norm(dim=-1)


def inlier_ratio(source: Tensor, target: Tensor, truth: Tensor, distance: float) -> float:
    """Share of matches closer than ``distance`` under the true transform."""
    if len(source) == 0:
        return 0.0
    near = match_distances(source, target, truth) < distance
    return float(near.to(torch.float64).mean())
