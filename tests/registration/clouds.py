"""Two views of one place with enough shape to be told apart."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pcnn.registration.descriptor import Described, Descriptor, described_all
from pcnn.registration.register import Registration, register_described
from pcnn.registration.transforms import inverse, transform_points
from tests.registration.poses import random_pose


def place(seed: int = 0) -> Tensor:
    """[P, 3] float32 points on the faces of boxes of many sizes, about 4 m wide."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(14):
        low = torch.rand(3, generator=generator) * torch.tensor([3.5, 3.5, 1.0])
        size = 0.3 + torch.rand(3, generator=generator)
        points = torch.rand(1400, 3, generator=generator)
        axis = torch.randint(3, (1400,), generator=generator)
        points[torch.arange(1400), axis] = points[torch.arange(1400), axis].round()
        parts.append(low + points * size)
    return torch.cat(parts)


def two_views(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target, and the transform of the source onto the target; two thirds are shared."""
    world = place(seed)
    truth = random_pose(seed)
    target = world[world[:, 0] < 3.2]
    source = world[world[:, 0] > 1.0][::2]
    source = transform_points(inverse(truth), source.double()).float()
    return source, target, truth


class Known:
    """Every cloud has the descriptors that it was given with."""

    name, voxel_size = "known", 0.05

    def __init__(self, *clouds: tuple[Tensor, Tensor]) -> None:
        self.clouds = clouds

    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        return [
            Described(points, features)
            for points in clouds
            for cloud, features in self.clouds
            if cloud is points
        ]


def known(wrong: float = 0.3) -> tuple[Tensor, Tensor, Tensor, Known]:
    """Two clouds, their pose, and places as descriptors, of which a share is wrong."""
    truth, target = random_pose(1), torch.rand(600, 3) * 3
    source = transform_points(truth.inverse(), target.double()).float()
    features = target.clone()
    bad = torch.rand(600) < wrong
    features[bad] = torch.rand(int(bad.sum()), 3) * 3
    return source, target, truth, Known((source, features), (target, target.clone()))


def register_points(
    source: Tensor, target: Tensor, descriptor: Descriptor, settings: Any = None, **options: Any
) -> Registration:
    """Describe two clouds and register them."""
    one, other = described_all(descriptor, [source, target], ["source", "target"])
    return register_described(one, other, descriptor, settings, **options)
