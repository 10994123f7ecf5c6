"""Loading for semantic segmentation, whatever the set."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import Collate
from pcnn.datamodules.exact_loading import ExactLoading, Split
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.collate import CollateSegmentation
from pcnn.datasets.labels import Rgb
from pcnn.datasets.source import Kind

__all__ = ["SegmentationDataModule", "Split"]


class SegmentationDataModule(ExactLoading):
    """Loaders of a labelled set, of `SegmentationBatch`; arguments as `ExactLoading`."""

    advice = (
        ", or train without it: dataset.on_error=skip (pcnn preprocess names all broken files "
        "at once)"
    )

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes 0..C-1."""

    @property
    @abstractmethod
    def colors(self) -> tuple[Rgb, ...]:
        """RGB in 0..255 of the classes."""

    @property
    @abstractmethod
    def channels(self) -> tuple[str, ...]:
        """Names of the channels of the network input besides x, y, z."""

    @property
    def in_channels(self) -> int:
        """Channels of the network input: x, y, z and the set's own."""
        return 3 + len(self.channels)

    @property
    @abstractmethod
    def source_kind(self) -> Kind:
        """Whether the data is ``real`` or ``simulated``; known after `prepare_data` or `setup`."""

    @property
    def num_classes(self) -> int:
        """Number of classes C."""
        return len(self.class_names)

    @abstractmethod
    def build(self, split: Split) -> CloudDataset | None:
        """Make the data set of a split; None where it has no scans by configuration."""

    def collate(self) -> Collate:
        """Return what joins samples into one sparse tensor."""
        return CollateSegmentation(self.in_channels, self.geometry)

    def to_raw(self, labels: np.ndarray) -> np.ndarray:
        """Translate train ids ([P], 0..C-1 or 255) into the ids the set's own files use, uint32."""
        return np.asarray(labels).astype(np.uint32)

    def prediction_path(self, name: str) -> Path:
        """Return where the set's layout wants the predicted labels of a scan, relative."""
        return Path(f"{name}.label")

    def dataset(self, split: Split) -> CloudDataset | None:
        """Return the data set of a split, set up on the first call."""
        return cast("CloudDataset | None", self._built(split))  # made by `build`

    def _built(self, split: Split) -> Dataset[Any] | None:
        dataset = super()._built(split)
        if isinstance(dataset, CloudDataset) and split != "train":
            dataset.gives_raw_points = True
        return dataset
