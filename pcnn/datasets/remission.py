"""Random changes of remission, which no two sensors and no simulator measure alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Len

from pcnn.datasets.samples import Cloud
from pcnn.ranges import Factor, NonNegative, Share


@dataclass(frozen=True)
class Remission:
    """Forget the remission of a scan, or distort its scale: ``clip(gain * r ** gamma + noise)``.

    A network that has seen scans without remission, and scans of every scale, uses shape first;
    remission then decides where shape does not, as between a road and a sidewalk. Remission is the
    last feature, in 0..1, and stays in it.

    Args:
        forget: chance that all of a scan's remission is 0.
        gain: lowest and highest factor, one a scan.
        gamma: lowest and highest exponent, one a scan.
        noise: standard deviation of what is added to every point.

    Raises:
        ValueError: a chance outside 0..1, ranges that are none, or negative noise.
    """

    forget: Share = 0.2
    gain: Annotated[Sequence[Factor], Len(2, 2)] = (0.8, 1.25)
    gamma: Annotated[Sequence[Factor], Len(2, 2)] = (0.8, 1.25)
    noise: NonNegative = 0.02

    def __post_init__(self) -> None:
        if not 0 <= self.forget <= 1:
            raise ValueError(f"forget must be a chance in 0..1, got {self.forget}")
        for name in ("gain", "gamma"):
            pair = getattr(self, name)
            if len(pair) != 2 or not 0 < pair[0] <= pair[1]:
                raise ValueError(
                    f"{name} of remission must be two numbers 0 < low <= high, got {list(pair)}"
                )
        if self.noise < 0:
            raise ValueError(f"noise of remission must not be negative, got {self.noise}")

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the cloud with another remission.

        Raises:
            ValueError: a cloud without features, with the name of its file.
        """
        if cloud.features.shape[1] == 0:
            raise ValueError(
                f"{cloud.path}: the points have no remission, which this augmentation changes; "
                "take another one (augment.remission=null)"
            )
        forget, gain, gamma = generator.random(3).tolist()
        value = cloud.features[:, -1]
        if forget < self.forget:
            value = torch.zeros_like(value)
        else:
            # powers in double: they may round differently from one machine to the next in float
            power = value.double().clamp(0, 1) ** _between(self.gamma, gamma)
            noise = torch.from_numpy(generator.standard_normal(cloud.n_points)) * self.noise
            value = (_between(self.gain, gain) * power + noise).clamp(0, 1).float()
        return replace(cloud, features=torch.cat([cloud.features[:, :-1], value[:, None]], dim=1))


def _between(pair: Sequence[float], share: float) -> float:
    return pair[0] + (pair[1] - pair[0]) * share
