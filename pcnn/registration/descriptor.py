"""What turns a cloud into points with descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Described:
    """Points with a descriptor each.

    Args:
        points: [N, 3] float32 in the cloud's own frame [m].
        features: [N, C] float32; near in Euclidean distance where places look alike.
    """

    points: Tensor
    features: Tensor


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
