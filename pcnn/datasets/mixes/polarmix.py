"""PolarMix: half of the surroundings from another scan, and its rare objects all around."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pcnn.datasets.joined_cloud import joined_cloud
from pcnn.datasets.samples import Cloud
from pcnn.datasets.turning import turned
from pcnn.ranges import Natural, Share


@dataclass(frozen=True)
class PolarMix:
    """Swap a half plane of azimuths, then paste the partner's instances, also turned.

    Scene-level swapping replaces what lies within half a turn from a random azimuth by the
    partner's points there. Rotate-pasting adds the partner's points of some classes three times:
    as they are, and turned about the vertical axis by angles uniform in [0, 120) and [120, 240)
    degrees.

    Args:
        classes: train ids that are pasted; of SemanticKITTI 0..7, all that moves.
        swap: chance of swapping.
        paste: chance of pasting.

    Raises:
        ValueError: a chance outside 0..1.

    Source: Xiao et al., "PolarMix", NeurIPS 2022, with mmdetection3d's numbers.
    """

    classes: Sequence[Natural] = tuple(range(8))
    swap: Share = 0.5
    paste: Share = 1.0

    def __post_init__(self) -> None:
        for name in ("swap", "paste"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} of PolarMix must be a chance in 0..1, got {getattr(self, name)}"
                )

    def __call__(self, cloud: Cloud, partner: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the mixed scan."""
        # always the same draws, so that a chance changes nothing but what it is about
        swap, start, paste, first, second = generator.random(5).tolist()
        mixed = cloud
        if swap < self.swap:
            own, other = (_within(one, start * 2 * math.pi, math.pi) for one in (cloud, partner))
            mixed = joined_cloud(
                cloud.select((~own).nonzero()[:, 0]), partner.select(other.nonzero()[:, 0])
            )
        if paste < self.paste and partner.labels is not None:
            wanted = torch.isin(partner.labels, torch.tensor(list(self.classes)))
            things = partner.select(wanted.nonzero()[:, 0])
            third = 2 * math.pi / 3
            for angle in (0.0, first * third, (1 + second) * third):
                mixed = joined_cloud(mixed, turned(things, angle))
        return mixed


def _within(cloud: Cloud, start: float, width: float) -> torch.Tensor:
    """[P] bool: whether the azimuth lies in [start, start + width), all in radians."""
    x, y, _ = cloud.points.double().unbind(1)
    return torch.remainder(torch.atan2(y, x) - start, 2 * math.pi) < width
