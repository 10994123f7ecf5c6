"""Normals of the surfaces of a cloud, by the points around each place."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.cell_search import SortedCells


def normals_of(points: Tensor, places: Tensor, radius: float) -> Tensor:
    """Unit normals at places [N, 3] of a cloud, of either sign.

    The direction in which the points within the radius spread least: the eigenvector of the
    smallest eigenvalue of their covariance. Any direction where there is one such point.
    """
    cells = SortedCells(points.float(), radius)
    return principal_axes(points, places, cells, radius)[1][:, :, 0]


def principal_axes(
    points: Tensor, places: Tensor, cells: SortedCells, radius: float, clouds: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """How far, and along which axes, the points around places spread; places are of `clouds`."""
    at, found = cells.pairs(places.float(), clouds, radius)
    # [K, 3], about the place to keep digits
    gap = (points.index_select(0, found) - places.index_select(0, at)).double()
    x, y, z = gap.split(1, dim=1)
    # the upper half of the products of coordinates, and the coordinates
    terms = torch.cat([x * gap, y * gap[:, 1:], z * z, gap], 1)  # [K, 9]
    count = torch.bincount(at, minlength=len(places)).clamp(min=1)[:, None]  # [N, 1]
    means = gap.new_zeros(len(places), 9).index_add_(0, at, terms) / count
    mean = means[:, 6:]
    square = means[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].unflatten(1, (3, 3))
    covariance = square - mean[:, :, None] * mean[:, None, :]
    variances, axes = torch.linalg.eigh(covariance)
    return variances, axes
