"""A user's own labelled clouds in a folder, and their splits."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import MinLen

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_sets import (
    SPLIT_NAMES,
    CloudSets,
    DataSource,
    Split,
    warn_left_out,
    without_figures,
)
from pcnn.datasets.label_files import is_cloud_file, label_source, read_labels, without_label_files
from pcnn.datasets.labels import LabelMap, read_classes
from pcnn.datasets.readers.clouds import Reading, chosen_columns, read_columns, read_points
from pcnn.errors import UNREADABLE, FileError, UserError
from pcnn.files.simulated import kind_of
from pcnn.ranges import PartialShare, Positive

log = logging.getLogger(__name__)


class FolderClouds:
    """Clouds of a split in files that `pcnn.datasets.read_points` reads, in subfolders too."""

    def __init__(self, sets: FolderSets, split: Split) -> None:
        self.sets = sets
        self.reading = replace(sets.reading, centred=True)
        self._clouds = sets.clouds(split)

    def __len__(self) -> int:
        return len(self._clouds)

    def name(self, index: int) -> str:
        return self.sets.name(self._clouds[index])

    def sources(self, index: int) -> Sequence[Path]:
        path = self._clouds[index]
        labels = label_source(path, self.reading.columns)
        return [path] if labels is None or labels == path else [path, labels]

    def recipe(self) -> Mapping[str, object]:
        channels, columns = self.reading.channels, self.reading.columns
        return {
            "set": "folder",
            "root": str(Path(self.sets.root).resolve()),
            "labels": sorted(self.sets.label_map.raw_to_train.items()),
            "channels": None if channels is None else list(channels),
            "intensity_max": self.reading.intensity_max,
            "columns": None if columns is None else list(columns),
            "fill": dict(self.reading.fill),
        }

    @cached_property
    def channels(self) -> tuple[str, ...]:
        """Names of the F channels besides x, y, z: those of the first cloud that can be read."""
        refusals = []
        for path in self._clouds:
            try:
                table = read_columns(path, self.reading)
                self.reading.values(table)
                return self.reading.names(table)
            except UNREADABLE as error:
                refusals.append(str(error))
        none = f"none of {len(refusals)} clouds can be read; {refusals[0]}"
        raise FileError(Path(self.sets.root), none)

    def read(self, index: int) -> Cloud:
        path = self._clouds[index]
        cloud = read_points(path, self.name(index), replace(self.reading, channels=self.channels))
        source, labels = label_source(path, self.reading.columns), cloud.labels
        if source is None:
            raise FileError(path, "its labels are gone")
        if source != path:
            labels = torch.from_numpy(read_labels(source, cloud.n_points_total))[cloud.point_index]
        assert labels is not None  # label_source names the cloud itself only when it has labels
        try:
            train = self.sets.label_map.encode(labels.numpy(), str(source))
        except FileError as error:  # no damage, but classes that nobody named
            raise UserError(f"{error}\npossible: dataset.class_names, dataset.classes") from error
        return replace(cloud, labels=torch.from_numpy(train))


@dataclass(frozen=True)
class FolderSets(CloudSets):
    """The splits of a folder of clouds.

    Where ``root/train`` or ``root/val`` exists, these folders and ``root/test`` hold the clouds.
    Otherwise the clouds are sorted by the hashes of their names: the first ``val_fraction``
    validate, the next ``test_fraction`` test, the others train. A share above zero is one cloud at
    least, but one trains before any validates, and one validates before any tests. Where nothing is
    set apart for the test, it reads what validates.
    """

    root: str  # the folder
    classes: str | Mapping[str, Any] | None = None  # a YAML file of classes, or what it holds
    class_names: Annotated[Sequence[str], MinLen(1)] | None = None  # instead: of labels 0..C-1
    channels: Sequence[str] | None = None  # properties besides x, y, z; None: what is there
    intensity_max: Positive | None = None  # the number in the files that becomes intensity 1
    columns: str | Sequence[str] | None = None  # of files of bare numbers, or a layout
    fill: Mapping[str, float] | None = None  # numbers for channels that a file lacks, by name
    val_fraction: PartialShare = 0.2  # share of the clouds that validates, in [0, 1)
    test_fraction: PartialShare = 0.0  # share that tests, in [0, 1); both together below 1
    always_centred = True

    def __post_init__(self) -> None:
        _ = self.label_map, self.reading  # refuse what does not fit together
        if self.test_fraction >= 1.0 - self.val_fraction:
            shares = f"{self.test_fraction} with val_fraction {self.val_fraction}"
            raise ValueError(f"test_fraction must lie in [0, 1 - val_fraction), got {shares}")

    @cached_property
    def label_map(self) -> LabelMap:
        if (self.classes is None) == (self.class_names is None):
            raise ValueError("either classes, a YAML file, or class_names must be given")
        if self.classes is not None:
            return read_classes(self.classes)
        return read_classes({"names": list(self.class_names or ())})

    @cached_property
    def reading(self) -> Reading:
        return Reading(
            None if self.channels is None else tuple(self.channels),
            self.intensity_max,
            columns=chosen_columns(self.columns),
            fill=dict(self.fill or {}),
        )

    @cached_property
    def found(self) -> DataSource:
        return DataSource(Path(self.root), kind_of(self.root))

    @property
    def unit_intensity(self) -> bool:  # type: ignore[override]
        return self.intensity_max is not None

    @property
    def tests_on_validation(self) -> bool:
        return "test" not in self._folders if self._folders else not self.test_fraction

    @property
    def note_on_test(self) -> str:  # type: ignore[override]
        return (
            f"{self.root} has no test split of its own (a folder test, or dataset.test_fraction): "
            "the test reads those that validate (of a folder val, or dataset.val_fraction of all)"
        )

    def find(self, split: Split) -> FolderClouds | None:
        found = FolderClouds(self, split)
        if len(found):
            return found
        text = "%s: no clouds are left for the %s split%s"
        log.warning(text, self.root, SPLIT_NAMES[split], without_figures(split))
        return None

    def clouds(self, split: Split) -> list[Path]:
        """Return the clouds of a split, sorted; an empty list where none are meant for it."""
        wanted = "val" if split == "test" and self.tests_on_validation else split
        if self._folders:
            if wanted not in self._folders and wanted != "train":
                return []
            return self._labelled(self._folders.get(wanted), split)
        clouds = self._labelled(Path(self.root), split)
        by_hash = sorted(clouds, key=lambda p: hashlib.sha256(self.name(p).encode()).digest())
        val = test = 0
        if self.val_fraction:
            val = min(max(1, round(len(clouds) * self.val_fraction)), len(clouds) - 1)
        if self.test_fraction:
            test = min(max(1, round(len(clouds) * self.test_fraction)), len(clouds) - 1 - val)
        start, end = {"val": (0, val), "test": (val, val + test)}.get(wanted, (val + test, None))
        return sorted(by_hash[start:end])

    def name(self, path: Path) -> str:
        """Return the path of a cloud below the root, without suffix."""
        return path.relative_to(self.root).with_suffix("").as_posix()

    @cached_property
    def _folders(self) -> dict[str, Path]:
        """Folders of the splits; none where the root has neither ``train`` nor ``val``."""
        root = Path(self.root)
        if not root.is_dir():
            raise FileNotFoundError(f"{root} is not a folder of clouds")
        found = {name: root / name for name in SPLIT_NAMES if (root / name).is_dir()}
        return found if found.keys() & {"train", "val"} else {}

    def _labelled(self, folder: Path | None, split: Split) -> list[Path]:
        """The labelled clouds below a folder; texts may be anything else, and clouds too."""
        below = [] if folder is None else folder.rglob("*")
        clouds = sorted(without_label_files(p for p in below if is_cloud_file(p, also=True)))
        labelled = [path for path in clouds if self._may_be_labelled(path)]
        clouds = [path for path in clouds if is_cloud_file(path) or path in labelled]
        by_name: dict[str, Path] = {}
        for path in clouds:
            other = by_name.setdefault(self.name(path), path)
            if other != path:
                raise ValueError(f"{other} and {path} have one name; keep one of them")
        if not labelled:
            raise FileNotFoundError(
                f"{self.root}: no labelled cloud for {split} (NAME.label, NAME_label.npy, labels/, "
                "a column 'label' or 'class', or classes of LAS)"
            )
        without = [name for name, path in by_name.items() if path not in labelled]
        if without and (split != "val" or self._folders):  # one split names those without any
            warn_left_out(Path(self.root), without, len(clouds), "clouds have no labels")
        return labelled

    def _may_be_labelled(self, path: Path) -> bool:
        try:
            return label_source(path, self.reading.columns) is not None
        except FileError:
            return is_cloud_file(path)  # it is named when it is read
