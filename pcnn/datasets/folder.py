"""A user's own labelled clouds in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from pcnn.datasets.class_file import read_classes
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.folder_split import FolderSplit
from pcnn.datasets.labels import LabelMap
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.points import label_source, read_labels, read_points, read_table
from pcnn.datasets.samples import Cloud
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.errors import UNREADABLE, FileError


class FolderClouds(CloudDataset):
    """Clouds in files that `pcnn.datasets.read_points` reads, found in subfolders too.

    Labels lie beside a cloud as ``NAME.label`` or ``NAME_label.npy``, in a folder of labels beside
    the clouds' own (`pcnn.datasets.readers.label_files.label_files`), in a PLY file's ``label`` or
    ``class`` property, or in a LAS file's ``classification``.

    The split is that of `pcnn.datasets.folder_split.FolderSplit`; a set of one cloud trains on it,
    and its validation is empty.

    Args:
        root: the folder.
        labels: classes and the labels they have in the files; see
            `pcnn.datasets.class_file.read_classes`. Names alone stand for the labels 0..C-1 and,
            of points that do not count, 255.
        split: ``train``, ``val``, ``test`` or ``all`` (everything under root).
        voxel_size: edge of a voxel, or of a cell of native points [m].
        crop: horizontal radius about the origin [m], or None.
        augment: random changes, or None.
        cache: folder for reduced clouds, or None.
        val_fraction: share of the clouds that validates, in [0, 1).
        test_fraction: share that tests, in [0, 1).
        reading: which channels are read; the origin of LAS clouds, and of those far from zero, is
            put into their middle, in any case. Without a choice the channels are those of the first
            cloud, and all clouds have them.
        labelled_only: leave out clouds without labels, and name them.
        seed: selects the augmentations.
        geometry: where the rows of a sample lie; None means voxels.

    Raises:
        FileNotFoundError: no root, or no cloud where the split should have some.
        ValueError: two clouds of one name, or a number out of range.
    """

    def __init__(
        self,
        root: str | Path,
        labels: LabelMap | Sequence[str],
        *,
        split: str = "all",
        voxel_size: VoxelSize,
        crop: float | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        val_fraction: float = 0.2,
        test_fraction: float = 0.0,
        reading: Reading | None = None,
        labelled_only: bool = True,
        seed: int = 0,
        geometry: Placement | None = None,
    ) -> None:
        self.root = Path(root)
        self.split = FolderSplit(self.root, val_fraction, test_fraction, labelled_only)
        self.label_map = (
            labels if isinstance(labels, LabelMap) else read_classes({"names": list(labels)})
        )
        self.reading = replace(reading or Reading(), centred=True)
        super().__init__(
            voxel_size=voxel_size,
            crop=crop,
            augment=augment,
            cache=cache,
            seed=seed,
            geometry=geometry,
        )
        self._clouds = self.split.clouds(split)

    def __len__(self) -> int:
        return len(self._clouds)

    def name(self, index: int) -> str:
        """Return the path below the root, without suffix."""
        return self.split.name(self._clouds[index])

    def sources(self, index: int) -> Sequence[Path]:
        """Return the cloud and the file that labels it."""
        path = self._clouds[index]
        labels = label_source(path)
        return [path] if labels in (None, path) else [path, labels]  # type: ignore[list-item]

    def recipe(self) -> Mapping[str, object]:
        """Return root, channels and meaning of the labels."""
        channels = self.reading.channels
        columns = self.reading.columns
        return {
            "set": "folder",
            "root": str(self.root.resolve()),
            "labels": sorted(self.label_map.raw_to_train.items()),
            "channels": None if channels is None else list(channels),
            "intensity_max": self.reading.intensity_max,
            "columns": None if columns is None else list(columns),
            "fill": dict(self.reading.fill),
            "strict": self.reading.strict,
        }

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Names of the F channels besides x, y, z: those of the first cloud that can be read.

        Raises:
            ValueError: none can.
        """
        refusals = []
        for path in self._clouds:
            try:
                table = read_table(path, self.reading)
                self.reading.values(table)
                return self.reading.names(table)
            except UNREADABLE as error:
                refusals.append(str(error))
        raise FileError(self.root, f"none of {len(refusals)} clouds can be read; {refusals[0]}")

    def read(self, index: int) -> Cloud:
        """Return the points of a cloud, without missing returns.

        Raises:
            ValueError: a file that breaks its format, without a channel that the other clouds have,
                or a label that the classes do not know.
        """
        path = self._clouds[index]
        reading = replace(self.reading, channels=self.channels)
        cloud = read_points(path, self.name(index), reading)
        source = label_source(path)
        if source is None:
            return cloud
        labels = cloud.labels
        if source != path:
            labels = torch.from_numpy(read_labels(source, cloud.n_points_total))[cloud.point_index]
        assert labels is not None  # label_source names the cloud itself only when it has labels
        train = self.label_map.encode(labels.numpy(), str(source))
        return replace(cloud, labels=torch.from_numpy(train))
