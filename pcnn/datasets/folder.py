"""A user's own labelled clouds in a folder."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from pcnn.datasets.augment import Augmentation
from pcnn.datasets.channels import Reading
from pcnn.datasets.class_file import read_classes
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import LabelMap
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.point_files import (
    SUFFIXES,
    is_cloud_file,
    label_source,
    read_labels,
    read_points,
)
from pcnn.datasets.samples import Cloud

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test", "all")

_NAMES_SHOWN = 20


class FolderClouds(CloudDataset):
    """Clouds in files that `pcnn.datasets.read_points` reads, found in subfolders too.

    Labels lie beside a cloud as ``NAME.label`` or ``NAME_label.npy``, in a PLY file's ``label`` or
    ``class`` property, or in a LAS file's ``classification``.

    The split: where ``root/train`` or ``root/val`` exists, these folders (and ``root/test``, else
    ``root/val``, for the test) hold the clouds. Otherwise ``val_fraction`` of the clouds, those
    whose names have the smallest hashes, validate and test, and the others train; adding clouds
    moves few of them.

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
        val_fraction: share of the clouds for validation, in (0, 1).
        reading: which channels are read; the origin of LAS clouds, and of those far from zero, is
            put into their middle, in any case.
        labelled_only: leave out clouds without labels, and name them.
        seed: selects the augmentations.
        geometry: where the rows of a sample lie; None means voxels.

    Raises:
        FileNotFoundError: no root, or no cloud of the split.
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
        reading: Reading | None = None,
        labelled_only: bool = True,
        seed: int = 0,
        geometry: Placement | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if not 0.0 < val_fraction < 1.0:
            raise ValueError(f"val_fraction must lie in (0, 1), got {val_fraction}")
        self.root = Path(root)
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
        clouds = _split(self.root, split, val_fraction)
        self._clouds = self._labelled(clouds) if labelled_only else clouds
        if not self._clouds:
            raise FileNotFoundError(
                f"no {'labelled ' if labelled_only else ''}cloud for {split} under {root}: looked "
                f"for {', '.join(f'*{s}' for s in SUFFIXES)} with labels in NAME.label, "
                f"NAME_label.npy, a PLY property 'label' or 'class', or LAS classification"
            )

    def __len__(self) -> int:
        return len(self._clouds)

    def name(self, index: int) -> str:
        """Return the path below the root, without suffix."""
        return _name(self.root, self._clouds[index])

    def sources(self, index: int) -> Sequence[Path]:
        """Return the cloud and the file that labels it."""
        path = self._clouds[index]
        labels = label_source(path)
        return [path] if labels in (None, path) else [path, labels]  # type: ignore[list-item]

    def recipe(self) -> Mapping[str, object]:
        """Return root, channels and meaning of the labels."""
        channels = self.reading.channels
        return {
            "set": "folder",
            "root": str(self.root.resolve()),
            "labels": sorted(self.label_map.raw_to_train.items()),
            "channels": None if channels is None else list(channels),
            "intensity_max": self.reading.intensity_max,
        }

    @cached_property
    def channels(self) -> int:
        """Channels F besides x, y, z, of the first cloud that can be read; all have as many.

        Raises:
            ValueError: none can.
        """
        return self._first[1]

    @cached_property
    def _first(self) -> tuple[Path, int]:
        """A cloud that can be read, and its channels."""
        refusals = []
        for path in self._clouds:
            try:
                return path, read_points(path, reading=self.reading).features.shape[1]
            except (OSError, ValueError) as error:
                refusals.append(str(error))
        raise ValueError(f"none of {len(refusals)} clouds can be read; {refusals[0]}")

    def read(self, index: int) -> Cloud:
        """Return all points of a cloud.

        Raises:
            ValueError: a file that breaks its format, another number of channels than the other
                clouds', or a label that the classes do not know.
        """
        path = self._clouds[index]
        cloud = read_points(path, self.name(index), self.reading)
        if cloud.features.shape[1] != self.channels:
            raise ValueError(
                f"{path}: {cloud.features.shape[1]} channels besides x, y, z, but "
                f"{self._first[0]} has {self.channels}"
            )
        source = label_source(path)
        if source is None:
            return cloud
        labels = cloud.labels
        if source != path:
            labels = torch.from_numpy(read_labels(source, cloud.n_points))
        assert labels is not None  # label_source names the cloud itself only when it has labels
        train = self.label_map.encode(labels.numpy(), str(source))
        return replace(cloud, labels=torch.from_numpy(train))

    def _labelled(self, clouds: list[Path]) -> list[Path]:
        with_labels = [path for path in clouds if _may_be_labelled(path)]
        without = [_name(self.root, p) for p in clouds if p not in set(with_labels)]
        if with_labels and without:
            more = len(without) - _NAMES_SHOWN
            log.warning(
                "%s: %d of %d clouds have no labels and are left out: %s%s",
                self.root,
                len(without),
                len(clouds),
                ", ".join(without[:_NAMES_SHOWN]),
                f" and {more} more" if more > 0 else "",
            )
        return with_labels


def _may_be_labelled(path: Path) -> bool:
    try:
        return label_source(path) is not None
    except (OSError, ValueError):
        return True  # it is named when it is read


def _split(root: Path, split: str, val_fraction: float) -> list[Path]:
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give the folder of your clouds as root")
    folders = {name: root / name for name in ("train", "val", "test") if (root / name).is_dir()}
    if split != "all" and ("train" in folders or "val" in folders):
        wanted = "val" if split == "test" and "test" not in folders else split
        return _clouds(root, folders[wanted]) if wanted in folders else []
    clouds = _clouds(root, root)
    if split == "all":
        return clouds
    by_hash = sorted(clouds, key=lambda p: hashlib.sha256(_name(root, p).encode()).digest())
    held_out = set(by_hash[: max(1, round(len(clouds) * val_fraction))])
    return [path for path in clouds if (path in held_out) != (split == "train")]


def _clouds(root: Path, folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if is_cloud_file(path)]
    by_name: dict[str, Path] = {}
    for path in sorted(found):
        other = by_name.setdefault(_name(root, path), path)
        if other != path:
            raise ValueError(f"{other} and {path} have one name; keep one of them")
    return list(by_name.values())


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).with_suffix("").as_posix()
