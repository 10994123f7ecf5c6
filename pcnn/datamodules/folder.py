"""A user's own labelled clouds."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval, Len, MinLen

from pcnn.datamodules.segmentation import SegmentationDataModule, Split
from pcnn.datasets.class_file import contents, read_classes
from pcnn.datasets.folder import FolderClouds
from pcnn.datasets.folder_split import FolderSplit
from pcnn.datasets.labels import IGNORE, Rgb
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.readers.channels import Reading, chosen_columns
from pcnn.datasets.source import Kind
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.files.bounded import LIMIT
from pcnn.ranges import Count, Label, Length, PartialShare, Positive, Seed, Workers
from pcnn.simulate import is_simulated

_Rgb = Annotated[Sequence[Annotated[int, Interval(ge=0, le=255)]], Len(3, 3)]

log = logging.getLogger(__name__)


class FolderSegmentation(SegmentationDataModule):
    """Semantic segmentation of the clouds in a folder; formats and split as in `FolderClouds`.

    Args:
        root: the folder.
        voxel_size: edge of a voxel [m]; on native points of a cell, the unit of kernels.
        classes: names, colours and labels of the classes: a YAML file, or what it holds; see
            `pcnn.datasets.class_file.read_classes`.
        class_names: in place of ``classes``, names of the labels 0..C-1.
        colors: goes with ``class_names``: RGB in 0..255 of the classes; None spreads hues.
        ignore_label: goes with ``class_names``: the label of points that do not count; 255 unless
            given.
        channels: names of the properties that become channels besides x, y, z; None: intensity and
            colours, as far as the files have them.
        intensity_max: the number in the files that becomes intensity 1; None: as
            `pcnn.datasets.readers.channels.Reading`.
        columns: names of the columns of ``.bin`` and ``.npy`` files, or the name of a layout
            (kitti, nuscenes, scannet, sunrgbd); None: as `pcnn.datasets.read_points`.
        fill: numbers for channels that a file lacks, by name.
        strict: refuse clouds with missing returns, in place of leaving these out.
        max_gib: largest size of a file, and of what it unpacks to in memory [GiB].
        crop: horizontal radius about the origin [m], or None.
        augment: random changes of training clouds, or None.
        batch_size: as in `SegmentationDataModule`, with the following five.
        val_batch_size: ...
        num_workers: ...
        seed: ...
        geometry: ...
        on_error: ...
        cache: keep training clouds under ``data_dir/cache``: their voxels, or their cropped
            points.
        data_dir: folder for the cache.
        val_fraction: share of the clouds that validates where there are no train and val folders.
        test_fraction: share that tests there; 0: the test reads the clouds of validation.

    Raises:
        FileNotFoundError: no such class file.
        ValueError: not one of ``classes`` and ``class_names``, or entries that do not fit.
    """

    def __init__(
        self,
        root: str,
        voxel_size: VoxelSize,
        classes: str | Mapping[str, Any] | None = None,
        class_names: Annotated[Sequence[str], MinLen(1)] | None = None,
        colors: Sequence[_Rgb] | None = None,
        ignore_label: Label | None = None,
        channels: Sequence[str] | None = None,
        intensity_max: Positive | None = None,
        columns: str | Sequence[str] | None = None,
        fill: Mapping[str, float] | None = None,
        strict: bool = False,
        max_gib: Positive = LIMIT,
        crop: Length | None = None,
        augment: Augmentation | None = None,
        batch_size: Count = 1,
        val_batch_size: Count = 1,
        num_workers: Workers | None = None,
        cache: bool = False,
        data_dir: str = "data",
        val_fraction: PartialShare = 0.2,
        test_fraction: PartialShare = 0.0,
        seed: Seed = 0,
        geometry: Placement | None = None,
        on_error: str = "raise",
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            val_batch_size=val_batch_size,
            num_workers=num_workers,
            seed=seed,
            geometry=geometry,
            on_error=on_error,
        )
        if (classes is None) == (class_names is None):
            raise ValueError(
                "dataset=folder needs either classes, a YAML file with names, colors, map and "
                "ignore, or class_names, the names of the labels 0, 1, 2, ..."
            )
        if classes is None:
            ignore = IGNORE if ignore_label is None else ignore_label
            names = list(class_names or ())
            if 0 <= ignore < len(names):
                raise ValueError(f"ignore_label {ignore} is the label of the class {names[ignore]}")
            classes = {"names": class_names, "colors": colors, "ignore": [ignore]}
        elif colors is not None or ignore_label is not None:
            raise ValueError("colors and ignore_label belong to class_names; put them into classes")
        self.label_map = read_classes(classes)
        self.root = Path(root)
        self.reading = Reading(
            None if channels is None else tuple(channels),
            intensity_max,
            columns=chosen_columns(columns),
            fill=dict(fill or {}),
            strict=strict,
            max_gib=max_gib,
        )
        self.voxel_size = voxel_size
        self.crop = crop
        self.augment = augment
        self.cache = cache
        self.data_dir = Path(data_dir)
        self.val_fraction = val_fraction
        self.test_fraction = test_fraction

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.label_map.class_names

    @property
    def colors(self) -> tuple[Rgb, ...]:
        """Given colours, or evenly spread hues."""
        return self.label_map.colors

    @property
    def classes(self) -> dict[str, Any]:
        """Content of a class file with these classes."""
        return contents(self.label_map)

    def to_raw(self, labels: np.ndarray) -> np.ndarray:
        """Translate train ids into the labels that the files use."""
        return self.label_map.decode(labels)

    @property
    def channels(self) -> tuple[str, ...]:
        """Channels of the first cloud of a split in use."""
        in_use = (dataset for dataset in self._datasets.values() if dataset is not None)
        dataset = next(in_use, None) or self.dataset("train")
        assert isinstance(dataset, FolderClouds)
        return dataset.channels

    @property
    def source_kind(self) -> Kind:
        """``simulated`` where the folder holds a SIMULATED.json, else ``real``."""
        return "simulated" if is_simulated(self.root) else "real"

    @property
    def data_root(self) -> Path:
        """The folder the clouds are read from."""
        return self.root

    @property
    def tests_on_validation(self) -> bool:
        """Whether no clouds are set apart for the test."""
        return not FolderSplit(self.root, self.val_fraction, self.test_fraction).has_own_test

    def build(self, split: Split) -> FolderClouds | None:
        """Make the data set of a split; None where no clouds are meant for it."""
        train = split == "train"
        if split == "test" and self.tests_on_validation:
            log.warning(
                "%s has no test split of its own (a folder test, or dataset.test_fraction): the "
                "test reads the clouds that validate",
                self.root,
            )
            return self.dataset("val")  # type: ignore[return-value]  # made by this method
        made = FolderClouds(
            self.root,
            self.label_map,
            split=split,
            voxel_size=self.voxel_size,
            crop=self.crop,
            augment=self.augment if train else None,
            cache=self.data_dir / "cache" / "folder" if train and self.cache else None,
            val_fraction=self.val_fraction,
            test_fraction=self.test_fraction,
            reading=self.reading,
            seed=self.seed,
            geometry=self.geometry,
        )
        if len(made):
            return made
        log.warning(
            "%s: no clouds are left for the %s split%s",
            self.root,
            {"val": "validation"}.get(split, split),
            "; last.ckpt is the result, without figures" if split == "val" else "",
        )
        return None
