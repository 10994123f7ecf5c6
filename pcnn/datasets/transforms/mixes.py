"""Mixes of two LiDAR scans into one training scan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import torch
from annotated_types import Interval, Len, MinLen

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud, joined_cloud, turned
from pcnn.ranges import Count, Natural, NonNegative, Share


class ScanMix(Protocol):
    """Makes one scan of two, a pure function of both and a generator."""

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the mixed scan, under the name of the first.

        Both scans come before any other change, with their origins at the sensor.
        """


@dataclass(frozen=True)
class LaserMix:
    """Cut both scans into equal bands of pitch; odd bands from the top come from the partner.

    Source: Kong et al., "LaserMix for Semi-Supervised LiDAR Semantic Segmentation", CVPR 2023, as
    mmdetection3d uses it with labels.
    """

    areas: Annotated[Sequence[Count], MinLen(1)] = (3, 4, 5, 6)  # numbers of bands to choose from
    pitch: Annotated[Sequence[Annotated[float, Interval(ge=-90, le=90)]], Len(2, 2)] = (-25.0, 3.0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.pitch[0] >= self.pitch[1]:
            raise ValueError(f"pitch must be [low, high] in degrees, got {list(self.pitch)}")

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        areas = self.areas[int(generator.integers(len(self.areas)))]
        own = self._band(cloud, areas) % 2 == 0
        other = self._band(partner, areas) % 2 == 1
        return joined_cloud(cloud.select(own), partner.select(other))

    def _band(self, cloud: Cloud, areas: int) -> torch.Tensor:
        """[P] int64: the band of every point, 0 the highest."""
        x, y, z = cloud.points.double().unbind(1)
        pitch = torch.atan2(z, torch.hypot(x, y))
        low, high = (math.radians(angle) for angle in self.pitch)
        return ((high - pitch) / (high - low) * areas).floor().clamp(0, areas - 1).long()


@dataclass(frozen=True)
class PolarMix:
    """Swap a half plane of azimuths, then paste the partner's instances, also turned.

    Source: Xiao et al., "PolarMix", NeurIPS 2022, with mmdetection3d's numbers.
    """

    classes: Sequence[Natural] = tuple(range(8))  # train ids that are pasted
    swap: Share = 0.5  # chance of swapping
    paste: Share = 1.0  # chance of pasting

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        # always the same draws, so that a chance changes nothing but what it is about
        swap, start, paste, first, second = generator.random(5).tolist()
        mixed = cloud
        if swap < self.swap:
            own, other = (_within(one, start * 2 * math.pi, math.pi) for one in (cloud, partner))
            mixed = joined_cloud(cloud.select(~own), partner.select(other))
        if paste < self.paste and partner.labels is not None:
            wanted = torch.isin(partner.labels, torch.tensor(list(self.classes)))
            things = partner.select(wanted)
            third = 2 * math.pi / 3
            for angle in (0.0, first * third, (1 + second) * third):
                mixed = joined_cloud(mixed, turned(things, angle))
        return mixed


def _within(cloud: Cloud, start: float, width: float) -> torch.Tensor:
    """[P] bool: whether the azimuth lies in [start, start + width), all in radians."""
    x, y, _ = cloud.points.double().unbind(1)
    return torch.remainder(torch.atan2(y, x) - start, 2 * math.pi) < width


@dataclass(frozen=True)
class OneOf:
    """Choose a mix for every sample; with what is left to 1, none."""

    mixes: Sequence[ScanMix]  # to choose from
    shares: Sequence[NonNegative]  # the chance of each

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.mixes) != len(self.shares) or sum(self.shares) > 1 + 1e-9:
            raise ValueError(f"shares: one for each mix, 1 at most in sum, got {self.shares}")

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        position = generator.random()
        for mix, share in zip(self.mixes, self.shares, strict=True):
            if position < share:
                return mix(cloud, partner, generator)
            position -= share
        return cloud
