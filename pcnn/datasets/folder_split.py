"""Which clouds of a folder train, validate and test."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pcnn.datasets.readers.label_files import without_label_files
from pcnn.datasets.readers.points import SUFFIXES, is_cloud_file, label_source
from pcnn.errors import FileError
from pcnn.hints import check_fields
from pcnn.ranges import PartialShare

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test", "all")

_NAMES_SHOWN = 20


@dataclass(frozen=True)
class FolderSplit:
    """The split of a folder of clouds.

    Where ``root/train`` or ``root/val`` exists, these folders and ``root/test`` hold the clouds.
    Otherwise the clouds are sorted by the hashes of their names: the first ``val_fraction``
    validate, the next ``test_fraction`` test, the others train; adding clouds moves few of them. A
    share above zero is one cloud at least, but one cloud trains before any validates, and one
    validates before any tests. Where nothing is set apart for the test, it reads what validates.

    Args:
        root: the folder.
        val_fraction: share of the clouds that validates, in [0, 1).
        test_fraction: share that tests, in [0, 1); both together below 1.
        labelled_only: clouds without labels belong to no split.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: a share out of range.
    """

    root: Path
    val_fraction: PartialShare = 0.2
    test_fraction: PartialShare = 0.0
    labelled_only: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.test_fraction >= 1.0 - self.val_fraction:
            raise ValueError(
                f"test_fraction must lie in [0, 1 - val_fraction), got {self.test_fraction} with "
                f"val_fraction {self.val_fraction}"
            )
        if not self.root.is_dir():
            raise FileNotFoundError(
                f"{self.root} is not a folder; give the folder of your clouds as root"
            )

    @property
    def has_own_test(self) -> bool:
        """True where the test reads other clouds than the validation."""
        return "test" in self._folders if self._has_folders else self.test_fraction > 0.0

    def clouds(self, split: str) -> list[Path]:
        """Return the clouds of a split, sorted; an empty list where none are meant for it.

        Args:
            split: ``train``, ``val``, ``test`` or ``all``, everything below the root.

        Raises:
            FileNotFoundError: clouds are meant for it, and none is there.
            ValueError: another split, or two clouds of one name.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
        wanted = "val" if split == "test" and not self.has_own_test else split
        if split != "all" and self._has_folders:
            if wanted not in self._folders and wanted != "train":
                return []
            return self._found(self._folders.get(wanted), split)
        # one split names the clouds that are left out of all of them
        clouds = self._found(self.root, split, says=split != "val")
        if split == "all":
            return clouds
        by_hash = sorted(clouds, key=lambda p: hashlib.sha256(self.name(p).encode()).digest())
        val, test = held_out(len(clouds), self.val_fraction, self.test_fraction)
        chosen = {
            "val": by_hash[:val],
            "test": by_hash[val : val + test],
            "train": by_hash[val + test :],
        }[wanted]
        return sorted(chosen)

    def name(self, path: Path) -> str:
        """Return the path of a cloud below the root, without suffix."""
        return path.relative_to(self.root).with_suffix("").as_posix()

    @cached_property
    def _folders(self) -> dict[str, Path]:
        names = ("train", "val", "test")
        return {name: self.root / name for name in names if (self.root / name).is_dir()}

    @property
    def _has_folders(self) -> bool:
        return "train" in self._folders or "val" in self._folders

    def _found(self, folder: Path | None, split: str, says: bool = True) -> list[Path]:
        clouds = [] if folder is None else self._below(folder)
        if self.labelled_only:
            clouds = self._labelled(clouds, says)
        if clouds:
            return clouds
        raise FileNotFoundError(
            f"no {'labelled ' if self.labelled_only else ''}cloud for {split} under {self.root}: "
            f"looked for {', '.join(f'*{s}' for s in SUFFIXES)} with labels in NAME.label or "
            f"NAME_label.npy, beside the cloud or in a folder labels/ beside its own, a PLY "
            f"property 'label' or 'class', or LAS classification"
        )

    def _below(self, folder: Path) -> list[Path]:
        found = without_label_files(path for path in folder.rglob("*") if is_cloud_file(path))
        by_name: dict[str, Path] = {}
        for path in sorted(found):
            other = by_name.setdefault(self.name(path), path)
            if other != path:
                raise ValueError(f"{other} and {path} have one name; keep one of them")
        return list(by_name.values())

    def _labelled(self, clouds: list[Path], says: bool) -> list[Path]:
        with_labels = [path for path in clouds if _may_be_labelled(path)]
        kept = set(with_labels)
        without = [self.name(path) for path in clouds if path not in kept]
        if with_labels and without and says:
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


def held_out(n: int, val_fraction: float, test_fraction: float) -> tuple[int, int]:
    """Return how many of n clouds validate and how many test."""
    val = min(max(1, round(n * val_fraction)), n - 1) if val_fraction else 0
    test = min(max(1, round(n * test_fraction)), n - 1 - val) if test_fraction else 0
    return val, test


def _may_be_labelled(path: Path) -> bool:
    try:
        return label_source(path) is not None
    except FileError:
        return True  # it is named when it is read
