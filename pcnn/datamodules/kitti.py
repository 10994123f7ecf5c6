"""SemanticKITTI, or simulated streets in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import MinLen

from pcnn.datamodules.segmentation import Split
from pcnn.datamodules.sourced import SourcedDataModule
from pcnn.datasets.labels import Rgb, label_map
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.semantic_kitti import (
    DOWNLOAD,
    TEST_SEQUENCES,
    TRAIN_SEQUENCES,
    VAL_SEQUENCES,
    SemanticKITTI,
)
from pcnn.datasets.source import DataSource, resolve_source, simulated_name
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.ranges import ArgumentsOf, Count, Length, Natural, Seed, Workers
from pcnn.simulate import VERSION, simulate_kitti

# arguments of the simulator that another folder tells
_TELLING = ("train_scans", "val_scans", "frame_stride")

_Drives = Annotated[Mapping[str, Any], ArgumentsOf("pcnn.simulate.simulate_kitti")]


class KITTISegmentation(SourcedDataModule):
    """Semantic segmentation of LiDAR scans: x, y, z, remission to 19 classes.

    Args:
        root: folder that holds ``sequences``; None stands for ``data_dir/kitti`` where it exists,
            else for simulated streets (see ``source``).
        source: ``auto``, ``real`` or ``simulated``; see `pcnn.datasets.source.resolve_source`.
        data_dir: folder for the default root, simulated sets and the cache.
        train_sequences: sequences to train on.
        val_sequences: sequences to validate on; may be empty.
        test_sequences: sequences to test on: labelled ones, or some of 11 to 21, whose labels are
            not public; these are predicted without figures.
        voxel_size: edge of a voxel [m]; on native points of a cell, the unit of kernels.
        crop: horizontal radius about the sensor [m], or None; also in validation and test, whose
            metrics then count the points inside it.
        labels: ``official`` or ``spvnas_compat``.
        augment: random changes of training scans, or None.
        batch_size: as in `SegmentationDataModule`, with the following five.
        val_batch_size: ...
        num_workers: ...
        seed: ...
        geometry: ...
        on_error: ...
        cache: keep training scans under ``data_dir/cache``: their voxels, or their cropped
            points.
        simulate: arguments of `pcnn.simulate.simulate_kitti`: seed, train_scans,
            val_scans, ...
        limit_train: number of training scans, spread over the sequences; None uses all.
        limit_val: number of validation and of test scans; None uses all.
        allow_missing: use the sequences that are there where some are missing.
    """

    def __init__(
        self,
        root: str | None = None,
        source: str = "auto",
        data_dir: str = "data",
        train_sequences: Annotated[Sequence[Natural], MinLen(1)] = TRAIN_SEQUENCES,
        val_sequences: Sequence[Natural] = VAL_SEQUENCES,
        test_sequences: Sequence[Natural] = VAL_SEQUENCES,
        voxel_size: VoxelSize = 0.1,
        crop: Length | None = 25.0,
        labels: str = "official",
        augment: Augmentation | None = None,
        batch_size: Count = 1,
        val_batch_size: Count = 1,
        num_workers: Workers = 2,
        cache: bool = True,
        seed: Seed = 0,
        simulate: _Drives | None = None,
        limit_train: Count | None = None,
        limit_val: Count | None = None,
        geometry: Placement | None = None,
        on_error: str = "raise",
        allow_missing: bool = False,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            val_batch_size=val_batch_size,
            num_workers=num_workers,
            seed=seed,
            geometry=geometry,
            on_error=on_error,
        )
        self.root = root
        self.source = source
        self.data_dir = Path(data_dir)
        self.sequences: dict[Split, tuple[int, ...]] = {
            "train": tuple(train_sequences),
            "val": tuple(val_sequences),
            "test": tuple(test_sequences),
        }
        self.voxel_size = voxel_size
        self.crop = crop
        self.labels = labels
        self.label_map = label_map(labels)
        self.augment = augment
        self.cache = cache
        self.simulate = dict(simulate or {})
        self.limit_train = limit_train
        self.limit_val = limit_val
        self.allow_missing = allow_missing

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the 19 classes in official order."""
        return self.label_map.class_names

    @property
    def colors(self) -> tuple[Rgb, ...]:
        """Official colours."""
        return self.label_map.colors

    @property
    def channels(self) -> tuple[str, ...]:
        """Remission, which other formats call intensity."""
        return ("intensity",)

    @property
    def tests_on_validation(self) -> bool:
        """Whether the same sequences validate and test: the labels of 11 to 21 are not public."""
        return self.sequences["test"] == self.sequences["val"]

    def build(self, split: Split) -> SemanticKITTI | None:
        """Make the data set of a split; None where it has no sequences."""
        sequences = self.sequences[split]
        if not sequences:
            return None
        if split == "test" and self.tests_on_validation:
            return self.dataset("val")  # type: ignore[return-value]  # made by this method
        source, train = self.found, split == "train"
        folder = source.root / "sequences"
        if source.kind == "simulated":
            # a simulated set holds the sequences it was asked to have scans in
            sequences = tuple(s for s in sequences if (folder / f"{s:02d}").is_dir()) or sequences
        sequences = self.parts_there(
            split, sequences, lambda s: (folder / f"{s:02d}" / "velodyne").is_dir(), "sequences"
        )
        if not sequences:
            return None
        return SemanticKITTI(
            source.root,
            sequences,
            voxel_size=self.voxel_size,
            crop=self.crop,
            augment=self.augment if train else None,
            cache=self.data_dir / "cache" / "semantic_kitti" if train and self.cache else None,
            labels=self.labels,
            seed=self.seed,
            geometry=self.geometry,
            limit=self.limit_train if train else self.limit_val,
            # there is no truth to wait for where it is not public: predictions are all that is made
            labelled_only=not (split == "test" and set(sequences) <= set(TEST_SEQUENCES)),
        )

    def to_raw(self, labels: np.ndarray) -> np.ndarray:
        """Translate train ids into official raw ids, uint32; 255 becomes 0, unlabeled."""
        return self.label_map.decode(labels)

    def prediction_path(self, name: str) -> Path:
        """Return the official place of a prediction: ``sequences/08/predictions/000123.label``."""
        sequence, scan = name.split("/")
        return Path("sequences", sequence, "predictions", f"{scan}.label")

    def find(self) -> DataSource:
        """The given folder, ``data_dir/kitti``, or simulated streets."""
        name = simulated_name("kitti", VERSION, simulate_kitti, self.simulate, _TELLING)
        return resolve_source(
            "SemanticKITTI",
            self.root,
            self.source,
            self.data_dir / "kitti",
            self.data_dir / "simulated" / name,
            partial(simulate_kitti, **self.simulate),
            ["sequences"],
            DOWNLOAD,
        )
