"""The transforms that fit sets of matched points best, by quaternions."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from pcnn.registration.transforms import whole

#: [9, 16] Horn's symmetric 4 x 4 matrix N of a covariance (xx, xy, ... zz), both row by row.
#: ``qᵀNq`` is the trace of the rotation of q times the covariance, so it makes rotations, too.
HORN = torch.tensor(
    [
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, -1],
        [0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0],
        [0, 0, -1, 0, 0, 0, 0, 1, -1, 0, 0, 0, 0, 1, 0, 0],
        [0, 0, 0, -1, 0, 0, 1, 0, 0, 1, 0, 0, -1, 0, 0, 0],
        [1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1],
        [0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0],
        [0, -1, 0, 0, -1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, -1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 1],
    ],
    dtype=torch.float64,
)
_HORN_TURNED = HORN.view(3, 3, 16).transpose(0, 1).reshape(9, 16)  # of transposed covariances
#: [16] so little that it counts where all points lie in one place alone: there the identity fits.
_UPRIGHT = torch.tensor([1e-30] + 15 * [0.0], dtype=torch.float64)


def fitted(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Transform that minimises ``sum_m w_m |R p_m + t - q_m|²`` of every set of points.

    Source: Horn 1987, "Closed-form solution of absolute orientation using unit quaternions".

    Where the points are collinear many rotations fit equally well, and the one that is returned
    need not be among them: a hypothesis is checked against its own points later.
    """
    return whole(fitted_rows(source, target, weight))


def fitted_rows(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """The first three rows [S, 3, 4] of the transforms of `fitted`."""
    source, target = source.double(), target.double()
    if weight is None:
        middle_source, middle_target = source.mean(1), target.mean(1)  # [S, 3]
        p, q = source - middle_source[:, None], target - middle_target[:, None]
    else:
        weight = weight.double()
        share = (weight / weight.sum(1, keepdim=True).clamp(min=1e-12))[..., None]
        middle_source, middle_target = (share * source).sum(1), (share * target).sum(1)
        root = share.sqrt()  # [S, n, 1]: half of the weight on each side of the product
        p, q = root * (source - middle_source[:, None]), root * (target - middle_target[:, None])
    return turned_onto(q.mT @ p, middle_source, middle_target)


def turned_onto(covariance: Tensor, middle_source: Tensor, middle_target: Tensor) -> Tensor:
    """The transforms of `fitted`, of sums over the points of every set."""
    if covariance.is_cuda:
        from pcnn.registration.fit_kernel import rigid_fits

        return rigid_fits(covariance, middle_source, middle_target)
    # Horn's symmetric matrix; its largest eigenvector is the quaternion (w, x, y, z)
    matrix = torch.addmm(_UPRIGHT, covariance.flatten(1), _HORN_TURNED).unflatten(1, (4, 4))
    # a CPU's LAPACK solves one in a microsecond
    rotation = from_quaternion(torch.linalg.eigh(matrix).eigenvectors[:, :, 3])
    shift = torch.baddbmm(middle_target[:, :, None], rotation, middle_source[:, :, None], alpha=-1)
    return torch.cat([rotation, shift], 2)


def from_quaternion(quaternion: Tensor) -> Tensor:
    """Rotations [S, 3, 3] of unit quaternions [S, 4], scalar part first."""
    products = quaternion[:, :, None] * quaternion[:, None, :]  # [S, 4, 4]
    return (products.flatten(1) @ _horn(quaternion.device)).unflatten(1, (3, 3)).mT


@cache
def _horn(device: torch.device) -> Tensor:
    return HORN.T.to(device)


def quaternion_vector(rotation: Tensor) -> Tensor:
    """Vector part (x, y, z) of the unit quaternions nearest to rotations, scalar part >= 0."""
    matrix = (rotation.flatten(-2) @ _HORN_TURNED.to(rotation)).unflatten(-1, (4, 4))
    quaternion = torch.linalg.eigh(matrix).eigenvectors[..., -1]  # w x y z
    return quaternion[..., 1:] * torch.where(quaternion[..., :1] < 0, -1.0, 1.0)
