"""Random changes of points one by one: elastic distortion, colour, and remission."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Len
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud
from pcnn.errors import ConfigError
from pcnn.ranges import Factors, Length, NonNegative, Share

#: Most nodes of a grid of displacements: 3 x 4 bytes each, twice.
MAX_NODES = 50_000_000
#: Each channel of a colour that a cloud has forgotten, or never had.
FORGOTTEN = 0.5


@dataclass(frozen=True)
class Elastic:
    """Distortions one after another, each of a grain and a strength.

    Source: Choy et al., "4D Spatio-Temporal ConvNets", 2019, section 5.1 and its code, with the
    numbers of Pointcept's S3DIS configurations.
    """

    strengths: Sequence[Annotated[Sequence[Length], Len(2, 2)]] = ((0.2, 0.4), (0.8, 1.6))
    share: Share = 0.95  # chance that a cloud is distorted at all

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        if generator.random() >= self.share:
            return cloud
        for grain, magnitude in self.strengths:
            cloud = distort(cloud, generator, grain, magnitude)
        return cloud


def distort(cloud: Cloud, generator: np.random.Generator, grain: float, magnitude: float) -> Cloud:
    """Displace points by noise on a grid of edge `grain`, blurred and interpolated."""
    if cloud.n_points == 0:
        return cloud
    low = cloud.points.amin(0)
    place = (cloud.points - low) / grain + 1.0  # [P, 3] in nodes; one spare node on every side
    nodes = [int(top) + 2 for top in place.amax(0).floor().tolist()]
    if math.prod(nodes) > MAX_NODES:
        wide = f"{math.prod(nodes):,} nodes of an elastic distortion of grain {grain} m"
        raise ConfigError("augment.elastic", f"{cloud.path}: {wide}; a coarser grain, or a crop")
    noise = torch.from_numpy(generator.standard_normal((1, 3, *nodes), dtype=np.float32))
    moves = _sampled(_blurred(noise), place, nodes)
    return replace(cloud, points=cloud.points + moves * magnitude)


def _blurred(noise: Tensor) -> Tensor:
    """Mean over three nodes along each axis, twice; nothing lies outside the grid."""
    for _ in range(2):
        for axis in range(3):
            width = [3 if other == axis else 1 for other in range(3)]
            noise = F.avg_pool3d(noise, width, 1, [edge // 2 for edge in width])
    return noise


def _sampled(noise: Tensor, place: Tensor, nodes: Sequence[int]) -> Tensor:
    """Noise [1, 3, X, Y, Z] at places [P, 3] in nodes, [P, 3]."""
    unit = 2.0 * place / (place.new_tensor(nodes) - 1.0) - 1.0
    # the sampler's first coordinate runs along the last axis
    found = F.grid_sample(
        noise, unit.flip(1)[None, :, None, None], mode="bilinear", align_corners=True
    )
    return found[0, :, :, 0, 0].T


@dataclass(frozen=True)
class Chromatic:
    """Stretch the contrast, shift all colours, and add noise to each; or forget them.

    Source: Choy et al., "4D Spatio-Temporal ConvNets", 2019, and its code, with the numbers of
    Pointcept's S3DIS configurations.
    """

    contrast: Share = 0.2  # chance of auto-contrast
    shift_share: Share = 0.95  # chance of a shift
    shift: NonNegative = 0.05  # largest shift of a channel; the shift is uniform in [-shift, shift)
    noise_share: Share = 0.95  # chance of noise
    noise: NonNegative = 0.05  # its standard deviation, in every channel of every point
    forget: Share = 0.0  # chance that all colours of a cloud are FORGOTTEN

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        if cloud.features.shape[1] < 3:
            raise ConfigError("augment.chromatic", f"{cloud.path}: its points have no colour")
        if cloud.n_points == 0:
            return cloud
        colour = cloud.features[:, :3]
        if self.forget > 0.0 and generator.random() < self.forget:
            grey = torch.full_like(colour, FORGOTTEN)
            return replace(cloud, features=torch.cat([grey, cloud.features[:, 3:]], dim=1))
        if generator.random() < self.contrast:
            share = generator.random()
            colour = (1 - share) * colour + share * stretched(colour)
        if generator.random() < self.shift_share:
            move = (2 * generator.random(3) - 1) * self.shift
            colour = (colour + torch.from_numpy(move.astype(np.float32))).clamp(0, 1)
        if generator.random() < self.noise_share:
            noise = generator.standard_normal(tuple(colour.shape), dtype=np.float32) * self.noise
            colour = (colour + torch.from_numpy(noise)).clamp(0, 1)
        return replace(cloud, features=torch.cat([colour, cloud.features[:, 3:]], dim=1))


def stretched(colour: Tensor) -> Tensor:
    """Every channel of colours [P, 3] brought to the range 0..1; one of a single value stays."""
    low, high = colour.amin(0), colour.amax(0)
    span = high - low
    return torch.where(span > 0, (colour - low) / torch.where(span > 0, span, 1.0), colour)


@dataclass(frozen=True)
class Remission:
    """Forget the remission of a scan, or distort its scale: ``clip(gain * r ** gamma + noise)``."""

    forget: Share = 0.2  # chance that all of a scan's remission is 0
    gain: Factors = (0.8, 1.25)  # lowest and highest factor
    gamma: Factors = (0.8, 1.25)  # lowest and highest exponent
    noise: NonNegative = 0.02  # standard deviation of what is added to every point

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        if cloud.features.shape[1] == 0:
            raise ConfigError("augment.remission", f"{cloud.path}: its points have no remission")
        forget, gain, gamma = generator.random(3).tolist()
        value = cloud.features[:, -1]
        if forget < self.forget:
            value = torch.zeros_like(value)
        else:
            # powers in double: they may round differently from one machine to the next in float
            power = value.double().clamp(0, 1) ** between(self.gamma, gamma)
            noise = torch.from_numpy(generator.standard_normal(cloud.n_points)) * self.noise
            value = (between(self.gain, gain) * power + noise).clamp(0, 1).float()
        return replace(cloud, features=torch.cat([cloud.features[:, :-1], value[:, None]], dim=1))


def between(pair: Sequence[float], share: float) -> float:
    """The number that lies a share of the way from the first of two to the second."""
    return pair[0] + (pair[1] - pair[0]) * share
