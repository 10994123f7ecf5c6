"""Hand-made batches of pairs of clouds, on voxels or native points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pcnn.metrics.registration import PairId
from pcnn.ops import native_points, voxelize
from pcnn.registration.transforms import inverse, transform_points
from pcnn.tensor import SparseTensor
from tests.registration.poses import random_pose


@dataclass(frozen=True, eq=False)
class Pairs:
    """The parts of a batch that a registration task reads."""

    source: SparseTensor
    target: SparseTensor
    source_places: Tensor
    target_places: Tensor
    source_offsets: Tensor
    target_offsets: Tensor
    transforms: Tensor
    names: tuple[PairId, ...]
    voxel_size: float
    positives: Tensor | None = None
    positive_offsets: Tensor | None = None

    @property
    def batch_size(self) -> int:
        return len(self.names)

    @property
    def inputs(self) -> tuple[SparseTensor, SparseTensor]:
        return self.source, self.target

    def with_positives(self, positives: Tensor, offsets: Tensor) -> Pairs:
        return replace(self, positives=positives, positive_offsets=offsets)

    def to(self, device: Any, non_blocking: bool = False) -> Pairs:
        moved = {
            name: value.to(device)
            for name, value in vars(self).items()
            if isinstance(value, Tensor | SparseTensor)
        }
        return replace(self, **moved)

    def tensors(self) -> list[Tensor]:
        return [value for value in vars(self).values() if isinstance(value, Tensor)]


def side(
    clouds: Sequence[Tensor], voxel_size: float, geometry: str
) -> tuple[SparseTensor, Tensor, Tensor]:
    """Clouds [P, 3] as an input of ones, places of its rows, and offsets."""
    points = torch.cat([torch.empty(0, 3), *clouds])
    batch = torch.repeat_interleave(
        torch.tensor([len(cloud) for cloud in clouds], dtype=torch.int64)
    )
    size = max(len(clouds), 1)
    if geometry == "point":
        made = native_points(points, points, batch, voxel_size=voxel_size, batch_size=size)
    else:
        made = voxelize(points, points, batch, voxel_size=voxel_size, batch_size=size)
    places = made.features
    offsets = made.geometry.batch_offsets if clouds else torch.zeros(1, dtype=torch.int64)
    return made.replace(torch.ones(len(places), 1)), places, offsets


def pairs_of(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    transforms: Sequence[Tensor],
    voxel_size: float,
    geometry: str = "voxel",
    names: Sequence[PairId] | None = None,
) -> Pairs:
    """A batch of given clouds [P, 3] and transforms [4, 4] of sources onto targets."""
    source, target = side(sources, voxel_size, geometry), side(targets, voxel_size, geometry)
    poses = torch.stack(list(transforms)) if transforms else torch.empty(0, 4, 4).double()
    return Pairs(
        source[0],
        target[0],
        source[1],
        target[1],
        source[2],
        target[2],
        poses,
        tuple(names or (PairId("scene", n + 1, n) for n in range(len(sources)))),
        voxel_size,
    )


def place(seed: int, points: int = 1500) -> Tensor:
    """[points, 3] on the faces of boxes of many sizes, about 2 m wide."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for _ in range(6):
        low = torch.rand(3, generator=generator) * torch.tensor([1.6, 1.6, 0.5])
        size = 0.2 + 0.6 * torch.rand(3, generator=generator)
        some = torch.rand(points // 6, 3, generator=generator)
        axis = torch.randint(3, (len(some),), generator=generator)
        some[torch.arange(len(some)), axis] = some[torch.arange(len(some)), axis].round()
        parts.append(low + some * size)
    return torch.cat(parts)


def views(
    seeds: Sequence[int], voxel_size: float = 0.1, geometry: str = "voxel", points: int = 1500
) -> Pairs:
    """Pairs of views of places that share two thirds; the names say which."""
    sources, targets, poses = [], [], []
    for seed in seeds:
        world, truth = place(seed, points), random_pose(seed)
        sources.append(transform_points(inverse(truth), world[world[:, 0] > 0.6].double()).float())
        targets.append(world[world[:, 0] < 1.6])
        poses.append(truth)
    return pairs_of(
        sources, targets, poses, voxel_size, geometry, [PairId("place", 0, s) for s in seeds]
    )
