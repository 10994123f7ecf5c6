"""Figures of putative matches under the true transform."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.registration.transforms import transform_points


def match_distances(source: Tensor, target: Tensor, truth: Tensor) -> Tensor:
    """Distance of every match's two points under the true transform, in metres."""
    moved = transform_points(truth.double(), source.double())
    return (moved - target.double()).norm(dim=-1)


def inlier_ratio(source: Tensor, target: Tensor, truth: Tensor, distance: float) -> float:
    """Share of matches closer than ``distance`` under the true transform."""
    if len(source) == 0:
        return 0.0
    near = match_distances(source, target, truth) < distance
    return float(near.to(torch.float64).mean())
