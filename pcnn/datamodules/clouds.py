"""Loading of labelled clouds, for every data set."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pcnn.datamodules.batch_stream import Collate
from pcnn.datamodules.exact_loading import ExactLoading
from pcnn.datasets.batches import CollateClouds
from pcnn.datasets.cache import ShardedClouds
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.cloud_sets import CloudSets, Kind, Split
from pcnn.datasets.labels import Rgb, contents
from pcnn.datasets.placement import VoxelSize
from pcnn.datasets.readers.columns import colours_first
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import UserError
from pcnn.ranges import Count, Length

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class CloudDataModule(ExactLoading):
    """Loaders of `CloudBatch`, and the sets of clouds behind them."""

    advice = (
        ", or train without it: dataset.on_error=skip (pcnn preprocess names all broken files "
        "at once)"
    )

    sets: CloudSets
    voxel_size: VoxelSize
    crop: Length | None = None
    point_max: Count | None = None
    augment: Augmentation | None = None
    cache: bool = False
    data_dir: str = "data"
    limit_train: Count | None = None
    limit_val: Count | None = None
    shards: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unit = self.sets.unit

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.sets.label_map.class_names

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def colors(self) -> tuple[Rgb, ...]:
        return self.sets.label_map.colors

    @property
    def classes(self) -> dict[str, Any]:
        return contents(self.sets.label_map)

    @property
    def files(self) -> dict[str, Any]:
        """Classes and conventions of the set's files, for predictions of files of a user's own."""
        names = ("word_labels", "always_centred", "on_floor", "unit_intensity")
        classes = {key: value for key, value in self.classes.items() if key != "colors"}
        return {"classes": classes, **{name: getattr(self.sets, name) for name in names}}

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels of the network input besides x, y, z."""
        if self.sets.known_channels is not None:
            return tuple(self.sets.known_channels)
        in_use = (one for one in self._datasets.values() if one is not None)
        dataset = next(in_use, None) or self.dataset("train")
        return tuple(dataset.channels)

    @property
    def in_channels(self) -> int:
        """Channels of the network input: x, y, z and the set's own."""
        return 3 + len(self.channels)

    @property
    def source_kind(self) -> Kind:
        if self.shards is not None:
            return cast("Kind", ShardedClouds(Path(self.shards, "train")).facts["kind"])
        return self.sets.found.kind

    @property
    def data_root(self) -> Path:
        return Path(self.shards) if self.shards else self.sets.found.root

    @property
    def tests_on_validation(self) -> bool:
        return self.shards is not None or self.sets.tests_on_validation

    def prepare_data(self) -> None:
        """Find the files, or simulate them; called by one process of each machine."""
        _ = self.source_kind

    def build(self, split: Split) -> CloudDataset | None:
        if split == "test" and self.tests_on_validation:
            if self.sets.note_on_test:
                log.warning("%s", self.sets.note_on_test)
            return cast("CloudDataset | None", self.dataset("val"))
        train = split == "train"
        clouds = self.sets.find(split) if self.shards is None else self._sharded(split)
        if clouds is None:
            return None
        augment = self.augment if train else None
        cached = train and self.cache and self.shards is None
        if augment is not None and augment.chromatic and not colours_first(clouds.channels):
            raise UserError(
                f"augment.chromatic changes the first three channels, which are "
                f"{', '.join(clouds.channels[:3])}.\n"
                "possible: dataset.channels=[red,green,blue,...], or augment.chromatic=null"
            )
        return CloudDataset(
            clouds,
            voxel_size=self.voxel_size,
            crop=self.crop if self.shards is None else None,
            point_max=self.point_max if train else None,
            augment=augment,
            cache=Path(self.data_dir, "cache", str(clouds.recipe()["set"])) if cached else None,
            seed=self.seed,
            geometry=self.geometry,
            limit=self.limit_train if train else self.limit_val,
        )

    def _sharded(self, split: Split) -> ShardedClouds | None:
        """The clouds of a split in shards, which must be those that this training would keep."""
        folder = Path(str(self.shards), split)
        if not folder.is_dir():
            return None
        clouds = ShardedClouds(folder)
        recipe = {**self.geometry.recipe(self.voxel_size), "crop": self.crop}
        clouds.check(recipe=recipe, classes=self.class_names)
        return clouds

    def collate(self, train: bool) -> Collate:
        """Return what joins samples: rows and points, in training the rows alone."""
        placed = None if train else self.voxel_size
        return CollateClouds(self.in_channels, self.geometry, placed, rows_alone=train)
