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
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import Placement, VoxelSize
from pcnn.datasets.point_files import (
    SUFFIXES,
    is_label_file,
    label_source,
    read_labels,
    read_points,
)
from pcnn.datasets.samples import Cloud

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test", "all")

_NAMES_SHOWN = 20


class FolderClouds(CloudDataset):
    """Clouds in ``.bin``, ``.npy`` or ``.ply`` files, found in subfolders too.

    Labels lie beside a cloud as ``NAME.label`` or ``NAME_label.npy``, or in a PLY file's ``label``
    or ``class`` property: a class 0..C-1 a point, or ``ignore_label``.

    The split: where ``root/train`` or ``root/val`` exists, these folders (and ``root/test``, else
    ``root/val``, for the test) hold the clouds. Otherwise ``val_fraction`` of the clouds, those
    whose names have the smallest hashes, validate and test, and the others train; adding clouds
    moves few of them.

    Args:
        root: the folder.
        class_names: names of the classes 0..C-1.
        split: ``train``, ``val``, ``test`` or ``all`` (everything under root).
        voxel_size: edge of a voxel, or of a cell of native points [m].
        crop: horizontal radius about the origin [m], or None.
        augment: random changes, or None.
        cache: folder for reduced clouds, or None.
        val_fraction: share of the clouds for validation, in (0, 1).
        ignore_label: the label of points that do not count.
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
        class_names: Sequence[str],
        *,
        split: str = "all",
        voxel_size: VoxelSize,
        crop: float | None = None,
        augment: Augmentation | None = None,
        cache: Path | None = None,
        val_fraction: float = 0.2,
        ignore_label: int = IGNORE,
        labelled_only: bool = True,
        seed: int = 0,
        geometry: Placement | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        if not 0.0 < val_fraction < 1.0:
            raise ValueError(f"val_fraction must lie in (0, 1), got {val_fraction}")
        if not 1 <= len(class_names) < IGNORE:
            raise ValueError(f"class_names must hold 1 to {IGNORE - 1} names")
        self.root = Path(root)
        self.class_names = tuple(class_names)
        self.ignore_label = ignore_label
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
                f"NAME_label.npy or a PLY property 'label' or 'class'"
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
        """Return root and meaning of the labels."""
        return {
            "set": "folder",
            "root": str(self.root.resolve()),
            "classes": len(self.class_names),
            "ignore_label": self.ignore_label,
        }

    @cached_property
    def channels(self) -> int:
        """Channels F besides x, y, z, of the first cloud; the others must have as many."""
        return read_points(self._clouds[0]).features.shape[1]

    def read(self, index: int) -> Cloud:
        """Return all points of a cloud.

        Raises:
            ValueError: a file that breaks its format, another number of channels than the first
                cloud's, or a label that is neither a class nor ``ignore_label``.
        """
        path = self._clouds[index]
        cloud = read_points(path, self.name(index))
        if cloud.features.shape[1] != self.channels:
            raise ValueError(
                f"{path}: {cloud.features.shape[1]} channels besides x, y, z, but "
                f"{self._clouds[0]} has {self.channels}"
            )
        source = label_source(path)
        if source is None:
            return cloud
        labels = cloud.labels
        if source != path:
            labels = torch.from_numpy(read_labels(source, cloud.n_points))
        assert labels is not None  # label_source names a PLY file only when it has labels
        return replace(cloud, labels=self._train_ids(labels, source))

    def _train_ids(self, labels: torch.Tensor, source: Path) -> torch.Tensor:
        ignored = labels == self.ignore_label
        wrong = ~ignored & ((labels < 0) | (labels >= len(self.class_names)))
        if bool(wrong.any()):
            raise ValueError(
                f"{source}: label {int(labels[wrong][0])} ({int(wrong.sum())} points in all) is "
                f"neither a class 0..{len(self.class_names) - 1} nor ignore_label "
                f"{self.ignore_label}"
            )
        return torch.where(ignored, IGNORE, labels)

    def _labelled(self, clouds: list[Path]) -> list[Path]:
        with_labels = [path for path in clouds if label_source(path) is not None]
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
    found = [p for s in SUFFIXES for p in folder.rglob(f"*{s}") if not is_label_file(p)]
    by_name: dict[str, Path] = {}
    for path in sorted(found):
        other = by_name.setdefault(_name(root, path), path)
        if other != path:
            raise ValueError(f"{other} and {path} have one name; keep one of them")
    return list(by_name.values())


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).with_suffix("").as_posix()
