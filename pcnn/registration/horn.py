"""The best rigid transform of a few points, for very many sets of them at once.

A singular value decomposition of every 3 x 3 covariance is slow on a GPU; the closed form by
quaternions is a handful of elementwise operations.

Source: Horn 1987, "Closed-form solution of absolute orientation using unit quaternions"; the
largest eigenvalue by Newton's method as Theobald 2005 (QCP) finds it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.transforms import assembled

STEPS = 30  # Newton's method falls to the largest root from above; few are needed but at ties


def fitted(source: Tensor, target: Tensor) -> Tensor:
    """Transform that minimises ``sum_m |R p_m + t - q_m|²`` of every set of points.

    Where the points are collinear many rotations fit alike, and the one that is returned need not
    be among them: a hypothesis is checked against its own points anyway.

    Args:
        source: [S, n, 3].
        target: [S, n, 3].

    Returns:
        [S, 4, 4] float64.
    """
    source, target = source.double(), target.double()
    middle_source, middle_target = source.mean(1), target.mean(1)  # [S, 3]
    p, q = source - middle_source[:, None], target - middle_target[:, None]
    # Horn's symmetric matrix; its largest eigenvector is the quaternion (w, x, y, z)
    s = p.mT @ q  # [S, 3, 3]
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = (row.unbind(1) for row in s.unbind(1))
    rows = [
        [xx + yy + zz, yz - zy, zx - xz, xy - yx],
        [yz - zy, xx - yy - zz, xy + yx, zx + xz],
        [zx - xz, xy + yx, yy - xx - zz, yz + zy],
        [xy - yx, zx + xz, yz + zy, zz - xx - yy],
    ]
    matrix = torch.stack([torch.stack(row, 1) for row in rows], 1)  # [S, 4, 4]
    largest = largest_eigenvalue(matrix, (p.square().sum((1, 2)) + q.square().sum((1, 2))) / 2)
    rotation = from_quaternion(null_vector(matrix - largest[:, None, None] * _eye(matrix)))
    return assembled(rotation, middle_target - (rotation @ middle_source[:, :, None]).squeeze(2))


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
    w, x, y, z = quaternion.unbind(1)
    entries = [
        1 - 2 * (y * y + z * z),
        2 * (x * y - w * z),
        2 * (x * z + w * y),
        2 * (x * y + w * z),
        1 - 2 * (x * x + z * z),
        2 * (y * z - w * x),
        2 * (x * z - w * y),
        2 * (y * z + w * x),
        1 - 2 * (x * x + y * y),
    ]
    return torch.stack(entries, 1).reshape(-1, 3, 3)


def _eye(matrix: Tensor) -> Tensor:
    return torch.eye(4, dtype=matrix.dtype, device=matrix.device)
