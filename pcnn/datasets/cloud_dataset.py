"""Labelled clouds as samples: cropped, cached, augmented, put on a geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from torch.utils.data import Dataset

from pcnn.datasets.cache import CloudCache
from pcnn.datasets.cloud import Cloud, joined_cloud
from pcnn.datasets.placement import OnVoxels, Placement, Sample, VoxelSize
from pcnn.datasets.sampler import Key, evenly_spaced
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.crops import crop, sphere_crop

# streams of random numbers beside that of the augmentation, which they do not disturb
MIX3D, CROP = 1, 2


class LabelledClouds(Protocol):
    """The clouds of a set as their files hold them: what a data set brings of its own."""

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the F features of a point."""

    def __len__(self) -> int:
        """Number of clouds."""

    def read(self, index: int) -> Cloud:
        """Return all points of a cloud, checked.

        Raises:
            ValueError: a file that breaks its format, naming file and rule.
        """

    def sources(self, index: int) -> Sequence[Path]:
        """Return the files of a cloud."""

    def name(self, index: int) -> str:
        """Return what identifies a cloud within the set, a relative path without suffix."""

    def recipe(self) -> Mapping[str, object]:
        """Return the plain values that the read clouds depend on; ``set`` names the set."""


@dataclass(eq=False)
class CloudDataset(Dataset[Sample]):
    """Clouds as samples that are pure functions of (seed, epoch, index).

    Without a cache a sample holds every point of the file inside the crop, as evaluation needs.
    With one, on voxels, it holds one mean point per voxel, as a faster training does; augmentation
    then acts on the means, which are voxelised again. On native points the cache holds the cropped
    clouds, and samples are the same with it and without.
    """

    clouds: LabelledClouds
    _: KW_ONLY
    voxel_size: VoxelSize
    crop: float | None = None
    point_max: int | None = None
    augment: Augmentation | None = None
    cache: Path | None = None
    seed: int = 0
    geometry: Placement = field(default_factory=OnVoxels)
    limit: int | None = None

    def __post_init__(self) -> None:
        self._chosen = evenly_spaced(range(len(self.clouds)), self.limit)
        self.recipe = {**self.geometry.recipe(self.voxel_size), "crop": self.crop}
        recipe = {**self.recipe, **self.clouds.recipe()}
        self._cache = None if self.cache is None else CloudCache(self.cache, recipe)

    def __len__(self) -> int:
        return len(self._chosen)

    @property
    def channels(self) -> tuple[str, ...]:
        return self.clouds.channels

    def read(self, index: int) -> Cloud:
        return self.clouds.read(self._chosen[index])

    def sources(self, index: int) -> Sequence[Path]:
        return self.clouds.sources(self._chosen[index])

    def name(self, index: int) -> str:
        return self.clouds.name(self._chosen[index])

    def __getitem__(self, key: Key | int) -> Sample:
        """Return the sample of a key (epoch, index); a plain index stands for epoch 0."""
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if not 0 <= index < len(self._chosen):
            raise IndexError(f"scan {index} of a set of {len(self)}")
        cloud = self._mixed(self._changed(index, epoch), epoch, index)
        return self.geometry.sample(cloud, self.voxel_size)

    def _mixed(self, cloud: Cloud, epoch: int, index: int) -> Cloud:
        if self.augment is None or self.augment.mix3d == 0.0:
            return cloud
        generator = sample_generator(self.seed, epoch, index, MIX3D)
        if generator.random() >= self.augment.mix3d:
            return cloud
        return joined_cloud(cloud, self._changed(self._other(index, generator), epoch))

    def _changed(self, index: int, epoch: int) -> Cloud:
        """A cloud as it is in an epoch, before others are added to it."""
        cloud, _ = self.keep(index)
        if self.augment is not None:
            cloud = self.augment(
                cloud,
                sample_generator(self.seed, epoch, index),
                lambda generator: self.keep(self._other(index, generator))[0],
            )
        if self.point_max is None:
            return cloud
        # a stream of its own: crops do not change with what augmentations draw
        generator = sample_generator(self.seed, epoch, index, CROP)
        cell = self.geometry.row_cell(self.voxel_size)
        return sphere_crop(cloud, generator, self.point_max, cell)

    def keep(self, index: int) -> tuple[Cloud, bool]:
        """Return a cloud, cropped and kept in the cache, and whether it was there."""
        if self._cache is None:
            return crop(self.read(index), self.crop), False
        name, sources = self.name(index), self.sources(index)
        found = self._cache.find(name, sources)
        if found is not None:
            return found, True

        def build() -> Cloud:
            return self.geometry.kept(crop(self.read(index), self.crop), self.voxel_size)

        return self._cache.put(name, sources, build), False

    def _other(self, index: int, generator: np.random.Generator) -> int:
        """Draw another scan; the only one of a set is its own partner."""
        n = len(self)
        return (index + 1 + int(generator.integers(n - 1))) % n if n > 1 else index
