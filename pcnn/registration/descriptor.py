"""Described points, and what a descriptor is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

SHORTEST = 1e-8


@dataclass(frozen=True, eq=False)
class Described:
    """Points with a descriptor each.

    Args:
        points: [N, 3] float32 in the cloud's own frame [m].
        features: [N, C] float32; near in Euclidean distance where places look similar.
        turned: [N, G, C'] float16, descriptors of the same points in copies of the cloud that the
            rotations of a group turned, where they were asked for
            (`pcnn.registration.turned_copies`).
    """

    points: Tensor
    features: Tensor
    turned: Tensor | None = None


class Descriptor(Protocol):
    """A cloud in, described points out."""

    @property
    def name(self) -> str:
        """As it is named beside every figure."""

    @property
    def voxel_size(self) -> float:
        """The cell that it describes once [m]; distances of matching follow from it."""

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] float32 [m].

        Raises:
            ValueError: too few points.
        """
        ...


def unit_length(features: Tensor) -> Tensor:
    """Divide every row by its Euclidean length.

    A row shorter than 1e-8 stays as it is, and its gradient too: a division by almost nothing
    would hand the network a gradient of 1e8.

    Args:
        features: [N, C]; half precision is computed in float32.

    Returns:
        [N, C] float32, or float64 for float64 features.
    """
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    square = features.square().sum(1, keepdim=True)
    return features * torch.where(square > SHORTEST**2, square, 1).rsqrt()
