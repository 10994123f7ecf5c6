"""Labelled clouds as samples: cropped, cached, augmented, put on a geometry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch.utils.data import Dataset

from pcnn.datasets.cache import CloudCache
from pcnn.datasets.cloud import Cloud, joined_cloud
from pcnn.datasets.placement import (
    OnVoxels,
    Placement,
    RawPoints,
    Sample,
    VoxelSize,
)
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


class CloudDataset(Dataset[Sample]):
    """Clouds as samples that are pure functions of (seed, epoch, index).

    Without a cache a sample holds every point of the file inside the crop, as evaluation needs.
    With one, on voxels, it holds one mean point per voxel, as a faster training does; augmentation
    then acts on the means, which are voxelised again. On native points the cache holds the cropped
    clouds, and samples are the same with it and without.
    """

    def __init__(
        self,
        clouds: LabelledClouds,
        *,
        voxel_size: VoxelSize,
        crop: float | None = None,
        point_max: int | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        seed: int = 0,
        geometry: Placement | None = None,
        limit: int | None = None,
    ) -> None:
        if point_max is not None and point_max < 1:
            raise ValueError(f"point_max must be at least 1 row or none, got {point_max}")
        self.clouds = clouds
        self.geometry = geometry or OnVoxels()
        self.voxel_size = voxel_size
        self.crop = crop
        self.point_max = point_max
        self.augment = augment
        self.seed = seed
        self.gives_raw_points = False  # set for evaluation, whose points may be placed again
        self._chosen = evenly_spaced(range(len(clouds)), limit)
        recipe = {**self.geometry.recipe(voxel_size), "crop": crop, **clouds.recipe()}
        self._cache = None if cache is None else CloudCache(cache, recipe)

    def __len__(self) -> int:
        return len(self._chosen)

    def read(self, index: int) -> Cloud:
        """Return all points of a cloud as its file holds them, checked."""
        return self.clouds.read(self._chosen[index])

    def sources(self, index: int) -> Sequence[Path]:
        """Return the files of a cloud."""
        return self.clouds.sources(self._chosen[index])

    def size(self, index: int) -> int:
        """Return the bytes of a cloud's files."""
        return sum(path.stat().st_size for path in self.sources(index))

    def name(self, index: int) -> str:
        """Return what identifies a cloud within the set."""
        return self.clouds.name(self._chosen[index])

    def cloud(self, key: Key | int) -> Cloud:
        """Return the cropped, possibly reduced, augmented cloud of a key (epoch, index).

        A plain index stands for epoch 0.
        """
        epoch, index = key if isinstance(key, tuple) else (0, key)
        if not 0 <= index < len(self):
            raise IndexError(f"scan {index} of a set of {len(self)}")
        cloud = self.changed(epoch, index)
        if self.augment is None or self.augment.mix3d == 0.0:
            return cloud
        generator = sample_generator(self.seed, epoch, index, MIX3D)
        if generator.random() >= self.augment.mix3d:
            return cloud
        return joined_cloud(cloud, self.changed(epoch, self._other(index, generator)))

    def changed(self, epoch: int, index: int) -> Cloud:
        """Return a cloud as it is in an epoch, before others are added to it."""
        cloud = self.stored(index)
        if self.augment is not None:
            cloud = self.augment(
                cloud,
                sample_generator(self.seed, epoch, index),
                lambda generator: self.stored(self._other(index, generator)),
            )
        if self.point_max is None:
            return cloud
        # a stream of its own: crops do not change with what augmentations draw
        generator = sample_generator(self.seed, epoch, index, CROP)
        return sphere_crop(
            cloud, generator, self.point_max, self.geometry.row_cell(self.voxel_size)
        )

    def stored(self, index: int) -> Cloud:
        """Return the cropped cloud, or what the cache keeps of it."""
        if self._cache is None:
            return crop(self.read(index), self.crop)
        return self._cache.get(
            self.name(index),
            self.sources(index),
            lambda: self.geometry.kept(crop(self.read(index), self.crop), self.voxel_size),
        )

    def keep(self, index: int) -> tuple[Cloud, bool]:
        """Put a cloud into the cache ahead of time, unless it is there."""
        if self._cache is None:
            raise RuntimeError("this set was made without a cache")
        found = self._cache.find(self.name(index), self.sources(index))
        return (self.stored(index), False) if found is None else (found, True)

    def _other(self, index: int, generator: np.random.Generator) -> int:
        """Draw another scan; the only one of a set is its own partner."""
        n = len(self)
        return (index + 1 + int(generator.integers(n - 1))) % n if n > 1 else index

    def __getitem__(self, key: Key | int) -> Sample:
        """Return the sample of a key (epoch, index)."""
        cloud = self.cloud(key)
        sample = self.geometry.sample(cloud, self.voxel_size)
        if not self.gives_raw_points:
            return sample
        return replace(sample, raw=RawPoints(cloud.features, self.voxel_size, self.geometry))


class ClassifiedClouds(Dataset[Sample]):
    """Clouds with one class each, which their names tell."""

    def __init__(self, clouds: CloudDataset, class_of: Callable[[str], int]) -> None:
        if clouds.augment is not None and (clouds.augment.mix3d or clouds.augment.mix is not None):
            raise ValueError(
                "a mix of two rooms has no type: classify with augment=rooms, or augment.mix3d=0 "
                "and augment.mix=null"
            )
        self.clouds = clouds
        self.labels = [class_of(clouds.name(index)) for index in range(len(clouds))]
        self.size = clouds.size

    def __len__(self) -> int:
        return len(self.clouds)

    def __getitem__(self, key: Key | int) -> Sample:
        """Return the sample of a key (epoch, index)."""
        label = self.labels[key[1] if isinstance(key, tuple) else key]
        return replace(self.clouds[key], labels=torch.tensor(label))
