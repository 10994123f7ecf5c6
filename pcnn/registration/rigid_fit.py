"""The transform that fits matched points best: weighted, with a scale, or of very many small sets.

Two closed forms. By singular values (`weighted_svd`, `weighted_similarity`), differentiable. By
quaternions (`fitted`), for very many small sets: a singular value decomposition of every 3 x 3
covariance is slow on a GPU, while quaternions take a handful of elementwise operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.transforms import assembled

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
STEPS = 30  # Newton's method falls to the largest root from above; few are needed but at ties


def weighted_svd(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Transform that minimises ``sum_m w_m |R p_m + t - q_m|²``.

    Differentiable; the rotation is proper (determinant 1) also where the points are coplanar or
    mirrored.

    Source: Kabsch 1976, Umeyama 1991 (Eqs. 40-43, without scale).

    Args:
        source: [..., M, 3].
        target: [..., M, 3].
        weight: [..., M] not negative; None gives all the same weight. Where all are zero the result
            is the identity: callers check for it.

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
        weight: [M] not negative; None gives all the same weight.

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


def fitted(source: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Transform that minimises ``sum_m w_m |R p_m + t - q_m|²`` of every set of points.

    Source: Horn 1987, "Closed-form solution of absolute orientation using unit quaternions"; the
    largest eigenvalue by Newton's method as Theobald 2005 (QCP) finds it.

    Where the points are collinear many rotations fit equally well, and the one that is returned
    need not be among them: a hypothesis is checked against its own points later.

    Args:
        source: [S, n, 3].
        target: [S, n, 3].
        weight: [S, n] not negative; None gives all the same weight. A set without weight gets the
            identity's rotation and no translation: callers check for it.

    Returns:
        [S, 4, 4] float64.
    """
    source, target = source.double(), target.double()
    if weight is None:
        middle_source, middle_target = source.mean(1), target.mean(1)  # [S, 3]
        p, q = source - middle_source[:, None], target - middle_target[:, None]
    else:
        share = (weight.double() / weight.double().sum(1, keepdim=True).clamp(min=1e-12))[..., None]
        middle_source, middle_target = (share * source).sum(1), (share * target).sum(1)
        root = share.sqrt()  # [S, n, 1]: half of the weight on each side of the product
        p, q = root * (source - middle_source[:, None]), root * (target - middle_target[:, None])
    above = (p.square().sum((1, 2)) + q.square().sum((1, 2))) / 2
    return turned_onto(p.mT @ q, middle_source, middle_target, above)


def turned_onto(
    covariance: Tensor, middle_source: Tensor, middle_target: Tensor, above: Tensor
) -> Tensor:
    """The transforms of `fitted`, of sums over the points of every set.

    Args:
        covariance: [S, 3, 3] float64, ``sum_m w_m p_m q_mᵀ`` about the weighted means.
        middle_source: [S, 3] weighted mean of the source.
        middle_target: [S, 3] that of the target.
        above: [S] ``sum_m w_m (|p_m|² + |q_m|²) / 2`` about the means, no eigenvalue lies above.

    Returns:
        [S, 4, 4] float64.
    """
    # Horn's symmetric matrix; its largest eigenvector is the quaternion (w, x, y, z)
    matrix = (covariance.flatten(1) @ HORN.to(covariance.device)).unflatten(1, (4, 4))
    if matrix.is_cuda:
        largest = largest_eigenvalue(matrix, above)
        quaternion = null_vector(matrix - largest[:, None, None] * _eye(matrix))
    else:
        quaternion = largest_eigenvector(matrix)
    rotation = from_quaternion(quaternion)
    return assembled(rotation, middle_target - (rotation @ middle_source[:, :, None]).squeeze(2))


def largest_eigenvector(matrix: Tensor) -> Tensor:
    """Unit eigenvectors [S, 4] of the largest eigenvalues of symmetric matrices [S, 4, 4].

    By LAPACK. A CPU solves one in a microsecond; a GPU's library takes them one after another.
    """
    vector = torch.linalg.eigh(matrix).eigenvectors[:, :, 3]
    # all points in one place: any rotation fits, the identity is one
    none = torch.zeros_like(vector)
    none[:, 0] = 1
    return torch.where((matrix != 0).any(2).any(1)[:, None], vector, none)


def largest_eigenvalue(matrix: Tensor, above: Tensor) -> Tensor:
    """Largest eigenvalue of traceless symmetric 4 x 4 matrices.

    Args:
        matrix: [S, 4, 4] float64.
        above: [S] where to start, not below it.

    Returns:
        [S].
    """
    # det(λ - A) = λ⁴ + a λ² + b λ + c, by the power sums of the eigenvalues (Newton's identities)
    square = matrix @ matrix
    second = square.diagonal(dim1=1, dim2=2).sum(1)
    third = (square * matrix).sum((1, 2))
    fourth = square.square().sum((1, 2))
    a, b, c = -second / 2, -third / 3, (second.square() / 2 - fourth) / 4
    value = above
    for _ in range(STEPS):
        polynomial = ((value.square() + a) * value + b) * value + c
        slope = (4 * value.square() + 2 * a) * value + b
        step = polynomial / torch.where(slope > 0, slope, torch.inf)
        value = value - step.clamp(min=0)
    return value


def null_vector(matrix: Tensor) -> Tensor:
    """Unit vectors [S, 4] that almost vanish under symmetric matrices [S, 4, 4] of rank 3.

    Rows of the adjugate matrix are multiples of it; the longest one has the most digits.
    """
    entry = [column.unbind(1) for column in matrix.unbind(1)]
    rows = []
    for row in range(4):
        a, b, c = (entry[i] for i in range(4) if i != row)
        cofactors = []
        for column in range(4):
            x, y, z = (j for j in range(4) if j != column)
            minor = (
                a[x] * (b[y] * c[z] - b[z] * c[y])
                - a[y] * (b[x] * c[z] - b[z] * c[x])
                + a[z] * (b[x] * c[y] - b[y] * c[x])
            )
            cofactors.append((-1) ** (row + column) * minor)
        rows.append(torch.stack(cofactors, 1))
    adjugate = torch.stack(rows, 1)
    longest = adjugate.norm(dim=2).argmax(1)
    vector = adjugate[torch.arange(len(matrix), device=matrix.device), longest]
    length = vector.norm(dim=1, keepdim=True)
    # all points in one place: any rotation fits, the identity is one
    none = torch.zeros_like(vector)
    none[:, 0] = 1
    return torch.where(length > 0, vector / length.clamp(min=1e-300), none)


def from_quaternion(quaternion: Tensor) -> Tensor:
    """Rotations [S, 3, 3] of unit quaternions [S, 4], scalar part first."""
    products = quaternion[:, :, None] * quaternion[:, None, :]  # [S, 4, 4]
    return (products.flatten(1) @ HORN.T.to(quaternion.device)).unflatten(1, (3, 3)).mT


def _eye(matrix: Tensor) -> Tensor:
    return torch.eye(4, dtype=matrix.dtype, device=matrix.device)
