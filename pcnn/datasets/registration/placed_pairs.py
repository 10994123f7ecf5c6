"""Pairs of clouds as samples, read, augmented and put on a geometry, and batches of them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pcnn.datasets.batches import Batch
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.placement import Placement, Sample
from pcnn.datasets.registration.augment import Pair, PairAugmentation, subset
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.sampler import Key, evenly_spaced
from pcnn.datasets.transforms.augment import sample_generator
from pcnn.metrics.registration.pair_results import PairId
from pcnn.tensor import SparseTensor

log = logging.getLogger(__name__)

#: Clouds that a loader's process keeps: fragments of 20,000 points take 0.24 MB each, and reading
#: one takes a fifth of the time of a sample.
KEPT_BYTES = 256 << 20

#: Share of samples whose input is jittered (FCGF).
JITTERED = 0.95


@dataclass(frozen=True, eq=False)
class PlacedPair:
    """Both clouds of a pair on geometries, as `placed` puts them there."""

    source: Sample
    target: Sample
    transform: Tensor  # [4, 4] float64, source to target, after augmentation
    name: PairId  # identifies the pair


def placed(points: Tensor, size: float, geometry: Placement, name: str) -> Sample:
    """Put points [P, 3] on a geometry, on their device."""
    sample = geometry.sample(Cloud(points, points[:, :0], None, name, name), size)
    # the features of a sample without features of its own are its coordinates
    places = sample.features
    return replace(sample, features=torch.cat([places, torch.ones_like(places[:, :1])], dim=1))


@dataclass(eq=False)
class PlacedPairs(Dataset[PlacedPair]):
    """Pairs as samples that are pure functions of (seed, epoch, index)."""

    pairs: PairDataset  # the set
    _: KW_ONLY
    voxel_size: float  # edge of a voxel [m]; on native points of a cell, the unit of kernels
    geometry: Placement  # where the rows of a cloud lie
    augment: PairAugmentation | None = None  # random changes, or None
    feature_noise: float = 0.0  # standard deviation of the noise on the input of ones
    max_points: int | None = None  # rows of a cloud at most, a random subset; None keeps all
    limit: int | None = None  # number of pairs, evenly spread over the list; None takes all
    seed: int = 0  # selects all random numbers
    kept_bytes: int = KEPT_BYTES  # of clouds that a process keeps after reading them

    def __post_init__(self) -> None:
        if not self.pairs.pairs:
            raise ValueError(f"{self.pairs.name} holds no pairs")
        self.chosen = evenly_spaced(self.pairs.pairs, self.limit)
        self._empty: set[tuple[str, int]] = set()  # named already
        self._kept: dict[tuple[str, int], Tensor] = {}
        self._room = self.kept_bytes

    def __len__(self) -> int:
        return len(self.chosen)

    def clouds(self, index: int) -> Pair:
        pair = self.chosen[index]
        source, target = (self._read(pair.scene, one) for one in (pair.source, pair.target))
        return source, target, pair.transform

    def __getitem__(self, key: Key | int) -> PlacedPair:
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if not 0 <= index < len(self):
            raise IndexError(f"pair {index} of a set of {len(self)}")
        generator = sample_generator(self.seed, epoch, index)
        clouds = self.clouds(index)
        if self.augment is not None:
            clouds = self.augment(clouds, generator)
        name = self.chosen[index].id
        source, target = (self._placed(points, generator, str(name)) for points in clouds[:2])
        return PlacedPair(source, target, clouds[2], name)

    def _placed(self, points: Tensor, generator: np.random.Generator, name: str) -> Sample:
        sample = placed(points, self.voxel_size, self.geometry, name)
        if self.max_points is not None and len(sample.features) > self.max_points:
            kept = subset(sample.features[:, :3], generator, self.max_points)
            sample = placed(kept, self.voxel_size, self.geometry, name)
        if self.feature_noise > 0.0 and generator.random() < JITTERED:
            noise = generator.standard_normal((len(sample.features), 1), dtype=np.float32)
            sample.features[:, 3:] += self.feature_noise * torch.from_numpy(noise)
        return sample

    def _read(self, scene: str, index: int) -> Tensor:
        if (scene, index) in self._kept:
            return self._kept[scene, index]
        points = self.pairs.cloud(scene, index)
        if points.nbytes <= self._room:
            self._room -= points.nbytes
            self._kept[scene, index] = points
        if len(points) == 0 and (scene, index) not in self._empty:
            self._empty.add((scene, index))
            text = "%s: cloud %d of %s is empty; its pairs contribute nothing"
            log.warning(text, self.pairs.name, index, scene)
        return points


class PairBatch(Batch):
    """Pairs of a step."""

    inputs: tuple[SparseTensor, ...]
    source_places: Tensor  # [N, 3] float32 of the rows
    target_places: Tensor  # [M, 3] float32
    source_offsets: Tensor  # [B + 1] int64: cloud b has the rows offsets[b]..offsets[b + 1]
    target_offsets: Tensor  # [B + 1] int64
    transforms: Tensor  # [B, 4, 4] float64, source to target, after augmentation
    positives: Tensor | None = None
    positive_offsets: Tensor | None = None
    names: tuple[PairId, ...]
    voxel_size: float

    def with_positives(self, positives: Tensor, positive_offsets: Tensor) -> PairBatch:
        other = copy.copy(self)
        other.positives, other.positive_offsets = positives, positive_offsets
        return other


@dataclass(frozen=True)
class CollatePairs:
    """Joins pairs into a batch. A class, so that workers can receive it."""

    placement: Placement  # of the clouds, which an empty list cannot tell
    voxel_size: float  # edge of a voxel, on native points of a cell [m]
    one_pass: bool = False  # both sides are one tensor

    def __call__(self, pairs: Sequence[PlacedPair]) -> PairBatch:
        """Return the batch of the pairs, in their order; no pairs give a batch of none."""
        sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        offsets = [torch.tensor([0, *(len(s.features) for s in side)]).cumsum(0) for side in sides]
        if not pairs:
            none = [placed(torch.empty(0, 3), self.voxel_size, self.placement, "nothing")]
            sides = none, none
        rows = [torch.cat([sample.features for sample in side]) for side in sides]
        truths = [pair.transform[None] for pair in pairs]
        entering: Any = [[*sides[0], *sides[1]]] if self.one_pass else sides
        return PairBatch(
            inputs=tuple(map(_joined, entering)),
            source_places=rows[0][:, :3].contiguous(),
            target_places=rows[1][:, :3].contiguous(),
            source_offsets=offsets[0],
            target_offsets=offsets[1],
            transforms=torch.cat([torch.empty(0, 4, 4).double(), *truths]),
            names=tuple(pair.name for pair in pairs),
            voxel_size=self.voxel_size,
        )


def _joined(samples: Sequence[Sample]) -> SparseTensor:
    geometries: list[Any] = [sample.geometry for sample in samples]
    ones = torch.cat([sample.features[:, 3:] for sample in samples])
    return SparseTensor(ones, type(geometries[0]).collate(geometries))
