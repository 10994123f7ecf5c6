"""Elastic distortion: a smooth random displacement of every point."""

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

from pcnn.datasets.cloud import Cloud
from pcnn.hints import check_fields
from pcnn.ranges import Length, Share

#: Most nodes of a grid of displacements: 3 x 4 bytes each, twice.
MAX_NODES = 50_000_000


@dataclass(frozen=True)
class Elastic:
    """Distortions one after another, each of a grain and a strength.

    Args:
        strengths: pairs of grain and magnitude [m].
        share: chance that a cloud is distorted at all.

    Raises:
        ValueError: numbers that are not positive, or a chance outside 0..1.

    Source: Choy et al., "4D Spatio-Temporal ConvNets", 2019, section 5.1 and its code, with the
    numbers of Pointcept's S3DIS configurations.
    """

    strengths: Sequence[Annotated[Sequence[Length], Len(2, 2)]] = ((0.2, 0.4), (0.8, 1.6))
    share: Share = 0.95

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, cloud: Cloud, generator: np.random.Generator) -> Cloud:
        """Return the distorted cloud."""
        if generator.random() >= self.share:
            return cloud
        for grain, magnitude in self.strengths:
            cloud = distort(cloud, generator, grain, magnitude)
        return cloud


def distort(cloud: Cloud, generator: np.random.Generator, grain: float, magnitude: float) -> Cloud:
    """Displace points by noise on a grid of edge `grain`, blurred and interpolated.

    Normal noise at the nodes is averaged over three nodes along each axis, twice, interpolated
    trilinearly at the points and multiplied by `magnitude`.

    Args:
        cloud: any number of points.
        generator: draws three numbers a node.
        grain: edge of the grid [m].
        magnitude: [m] factor on the displacement.

    Raises:
        ValueError: a cloud so large that its grid would not fit in memory, with its file.
    """
    if cloud.n_points == 0:
        return cloud
    low = cloud.points.amin(0)
    place = (cloud.points - low) / grain + 1.0  # [P, 3] in nodes; one spare node on every side
    nodes = [int(top) + 2 for top in place.amax(0).floor().tolist()]
    if math.prod(nodes) > MAX_NODES:
        raise ValueError(
            f"{cloud.path}: an elastic distortion of grain {grain} m over this cloud has "
            f"{math.prod(nodes):,} nodes; take a coarser grain, or crop"
        )
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
