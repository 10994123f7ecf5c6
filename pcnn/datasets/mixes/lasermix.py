"""LaserMix: bands of elevation taken in turn from two scans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Interval, Len, MinLen

from pcnn.datasets.joined_cloud import joined_cloud
from pcnn.datasets.samples import Cloud
from pcnn.ranges import Count


@dataclass(frozen=True)
class LaserMix:
    """Cut both scans into equal bands of pitch; odd bands from the top come from the partner.

    ``pitch = atan2(z, sqrt(x^2 + y^2))``, points beyond the outer angles belong to the outer bands.

    Args:
        areas: numbers of bands to choose from, with equal chances.
        pitch: lowest and highest angle that is divided [deg].

    Raises:
        ValueError: no number of bands or one below 1, or angles that are no interval.

    Source: Kong et al., "LaserMix for Semi-Supervised LiDAR Semantic Segmentation", CVPR 2023, as
    mmdetection3d uses it with labels.
    """

    areas: Annotated[Sequence[Count], MinLen(1)] = (3, 4, 5, 6)
    pitch: Annotated[Sequence[Annotated[float, Interval(ge=-90, le=90)]], Len(2, 2)] = (-25.0, 3.0)

    def __post_init__(self) -> None:
        if not self.areas or min(self.areas) < 1:
            raise ValueError(f"areas of LaserMix must be numbers >= 1, got {list(self.areas)}")
        if len(self.pitch) != 2 or not -90 <= self.pitch[0] < self.pitch[1] <= 90:
            raise ValueError(
                f"pitch of LaserMix must be [low, high] within -90..90 deg, got {list(self.pitch)}"
            )

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the mixed scan."""
        areas = self.areas[int(generator.integers(len(self.areas)))]
        own = self._band(cloud, areas) % 2 == 0
        other = self._band(partner, areas) % 2 == 1
        return joined_cloud(
            cloud.select(own.nonzero()[:, 0]), partner.select(other.nonzero()[:, 0])
        )

    def _band(self, cloud: Cloud, areas: int) -> torch.Tensor:
        """[P] int64: the band of every point, 0 the highest."""
        x, y, z = cloud.points.double().unbind(1)
        pitch = torch.atan2(z, torch.hypot(x, y))
        low, high = (math.radians(angle) for angle in self.pitch)
        return ((high - pitch) / (high - low) * areas).floor().clamp(0, areas - 1).long()
