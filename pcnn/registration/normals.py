"""Normals of a cloud by the plane that fits the neighbours of a place."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.maps.radius_pairs import radius_pairs


def normals_of(points: Tensor, places: Tensor, radius: float) -> Tensor:
    """Unit normals at places of a cloud, of either sign.

    The direction in which the points within the radius spread least: the eigenvector of the
    smallest eigenvalue of their covariance. Any direction where there is one such point.

    Args:
        points: [P, 3] [m].
        places: [N, 3] [m], each with a point within the radius.
        radius: of the neighbourhood [m].

    Returns:
        [N, 3] float64.
    """
    at, found = radius_pairs(points.float(), None, places.float(), None, radius)
    gap = (points[found] - places[at]).double()  # [K, 3], about the place to keep digits
    count = torch.bincount(at, minlength=len(places)).clamp(min=1)[:, None]  # [N, 1]
    sums = gap.new_zeros(len(places), 9)
    sums.index_add_(0, at, (gap[:, :, None] * gap[:, None, :]).flatten(1))
    mean = gap.new_zeros(len(places), 3).index_add_(0, at, gap) / count
    covariance = (sums / count).reshape(-1, 3, 3) - mean[:, :, None] * mean[:, None, :]
    return torch.linalg.eigh(covariance).eigenvectors[:, :, 0]
