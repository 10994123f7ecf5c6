"""What all sets of labelled clouds do alike: crop, cache, augment, put on a geometry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch.utils.data import Dataset

from pcnn.datasets.cache import CloudCache
from pcnn.datasets.joined_cloud import joined_cloud
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.raw_points import RawPoints
from pcnn.datasets.sampler import Key
from pcnn.datasets.samples import Cloud, SegmentationSample
from pcnn.datasets.transforms.augment import Augmentation, sample_generator
from pcnn.datasets.transforms.crops import crop
from pcnn.datasets.voxels import OnVoxels

#: Keeps the draws about adding a second cloud apart from those that change the first.
MIX3D = 1


class CloudDataset(Dataset[SegmentationSample], ABC):
    """A set of clouds whose samples are pure functions of (seed, epoch, index).

    Without a cache a sample holds every point of the file inside the crop, as evaluation needs.
    With one, on voxels, it holds one mean point per voxel, as a faster training does; augmentation
    then acts on the means, which are voxelised again. On native points the cache holds the cropped
    clouds, and samples are the same with it and without.

    Args:
        voxel_size: edge of a voxel [m]; on native points of a cell, the unit of kernels.
        crop: horizontal radius about the origin [m], or None.
        augment: random changes, or None.
        cache: folder for reduced clouds, or None.
        seed: selects the augmentations.
        geometry: where the rows of a sample lie; None means voxels.
    """

    def __init__(
        self,
        *,
        voxel_size: VoxelSize,
        crop: float | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        seed: int = 0,
        geometry: Placement | None = None,
    ) -> None:
        self.geometry = geometry or OnVoxels()
        self.voxel_size = voxel_size
        self.crop = crop
        self.augment = augment
        self.seed = seed
        self.gives_raw_points = False  # set for evaluation, whose points may be placed anew
        self._cache = None if cache is None else CloudCache(cache, self._full_recipe())

    @abstractmethod
    def __len__(self) -> int:
        """Number of scans."""

    @abstractmethod
    def read(self, index: int) -> Cloud:
        """Return all points of a scan, checked.

        Raises:
            ValueError: a file that breaks its format, naming file and rule.
        """

    @abstractmethod
    def sources(self, index: int) -> Sequence[Path]:
        """Return the files of a scan."""

    @abstractmethod
    def name(self, index: int) -> str:
        """Return what identifies a scan within the set, a relative path without suffix."""

    @abstractmethod
    def recipe(self) -> Mapping[str, object]:
        """Return the plain values, besides voxel size and crop, that the read clouds depend on."""

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
        return self.finished(cloud, epoch, index)

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
        """Put a cloud into the cache ahead of time, unless it is there.

        Returns:
            What the cache holds, and whether it was there.

        Raises:
            RuntimeError: this set has no cache.
            ValueError: as `read`.
        """
        if self._cache is None:
            raise RuntimeError("this set was made without a cache")
        found = self._cache.find(self.name(index), self.sources(index))
        return (self.stored(index), False) if found is None else (found, True)

    def _other(self, index: int, generator: np.random.Generator) -> int:
        """Draw another scan; the only one of a set is its own partner."""
        n = len(self)
        return (index + 1 + int(generator.integers(n - 1))) % n if n > 1 else index

    def finished(self, cloud: Cloud, epoch: int, index: int) -> Cloud:
        """Return what becomes of an augmented cloud before it is placed: a set may crop it."""
        return cloud

    def __getitem__(self, key: Key | int) -> SegmentationSample:
        """Return the sample of a key (epoch, index)."""
        cloud = self.cloud(key)
        sample = self.geometry.sample(cloud, self.voxel_size)
        if not self.gives_raw_points:
            return sample
        return replace(sample, own=RawPoints(cloud.features, self.voxel_size, self.geometry))

    def _full_recipe(self) -> dict[str, object]:
        return {**self.geometry.recipe(self.voxel_size), "crop": self.crop, **self.recipe()}
