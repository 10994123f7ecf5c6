"""Rigid transforms as 4 x 4 matrices (``x' = T x``), and clouds moved near zero, for float32."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

#: How far R Rᵀ may be from the identity in a matrix that is read: published lists go up to 0.0011.
ORTHONORMAL = 5e-3


def transform_points(transform: Tensor, points: Tensor) -> Tensor:
    """Move points: ``R p + t``."""
    rotation, translation = transform[..., :3, :3], transform[..., :3, 3]
    return points @ rotation.mT + translation[..., None, :]


def inverse(transform: Tensor) -> Tensor:
    """Inverse of rigid transforms [..., 4, 4]: ``[Rᵀ, -Rᵀ t]``."""
    return assembled(
        transform[..., :3, :3].mT,
        -(transform[..., :3, :3].mT @ transform[..., :3, 3:]).squeeze(-1),
    )


def assembled(rotation: Tensor, translation: Tensor) -> Tensor:
    """4 x 4 matrices of rotations [..., 3, 3] and translations [..., 3]."""
    return whole(torch.cat([rotation, translation[..., None]], -1))


def whole(rows: Tensor) -> Tensor:
    """Transforms [..., 4, 4] of their first three rows [..., 3, 4]."""
    bottom = torch.zeros_like(rows[..., :1, :])
    bottom[..., 3] = 1
    return torch.cat([rows, bottom], -2)


def rigid(matrix: ArrayLike | Tensor, name: str = "transform") -> Tensor:
    """Check that a matrix is a rigid transform."""
    given = matrix if isinstance(matrix, Tensor) else torch.from_numpy(np.asarray(matrix, float))
    value = given.detach().to("cpu", torch.float64)
    if value.shape != (4, 4):
        raise ValueError(f"{name} must be a 4 x 4 matrix, got {list(value.shape)}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} holds NaN or infinite numbers")
    bottom = value.new_tensor([0.0, 0.0, 0.0, 1.0])
    if float((value[3] - bottom).abs().max()) > ORTHONORMAL:
        raise ValueError(f"{name}: the bottom row must be 0 0 0 1, got {value[3].tolist()}")
    rotation = value[:3, :3]
    off = float((rotation @ rotation.T - torch.eye(3, dtype=value.dtype)).abs().max())
    if off > ORTHONORMAL or float(torch.linalg.det(rotation)) < 0:
        raise ValueError(
            f"{name}: the upper left 3 x 3 block is no rotation (R Rᵀ is off the identity by "
            f"{off:.2g}, determinant {float(torch.linalg.det(rotation)):.3f})"
        )
    return value


def not_rigid(transforms: Tensor) -> int | None:
    """First of [F, 4, 4] float64 that `rigid` refuses, or None."""
    rotation = transforms[:, :3, :3]
    off = (rotation @ rotation.mT - torch.eye(3, dtype=rotation.dtype)).abs().amax((1, 2))
    bottom = (transforms[:, 3] - transforms.new_tensor([0.0, 0.0, 0.0, 1.0])).abs().amax(1)
    good = (off <= ORTHONORMAL) & (bottom <= ORTHONORMAL) & (torch.linalg.det(rotation) >= 0)
    good &= torch.isfinite(transforms).all(2).all(1)  # NaN fails every comparison
    return None if bool(good.all()) else int((~good).int().argmax())


def rotation_angle(rotation: Tensor) -> Tensor:
    """Angle of rotations [deg], ``atan2(|(R - Rᵀ)ˇ| / 2, (tr R - 1) / 2)``: exact if small, too."""
    skew = rotation - rotation.mT
    sine = torch.stack([skew[..., 2, 1], skew[..., 0, 2], skew[..., 1, 0]], -1).norm(dim=-1) / 2
    cosine = (rotation.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2
    return torch.atan2(sine, cosine) * (180 / math.pi)


@dataclass(frozen=True, eq=False)
class LocalCloud:
    """A cloud about an origin of its own."""

    points: Tensor  # [P, 3] float32 [m], the coordinates that were given minus origin
    origin: Tensor  # [3] float64 [m]; zero unless the coordinates are those of a map
    missing: int = 0  # rows that were left out, as they hold no return

    def to(self, device: torch.device | str) -> LocalCloud:
        """The same with its points on a device."""
        return replace(self, points=self.points.to(device))

    @property
    def moved(self) -> bool:
        """True where the origin is not that of the coordinates that were given."""
        return bool(self.origin.any())

    def given(self, points: Tensor) -> Tensor:
        """Points [N, 3] of the local frame in the coordinates that were given, float64 if moved."""
        return points.double() + self.origin if self.moved else points


def to_given(transform: Tensor, source: LocalCloud, target: LocalCloud) -> Tensor:
    """A transform between local frames as one between given coordinates: ``t + o_q - R o_p``."""
    made = transform.clone()
    made[:3, 3] += target.origin - made[:3, :3] @ source.origin
    return made
