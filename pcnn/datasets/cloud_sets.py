"""Sets of labelled clouds by split: what `sets:` names in the configuration of a data set."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from pcnn.datasets.cloud_dataset import LabelledClouds
from pcnn.datasets.labels import LabelMap
from pcnn.datasets.source import DataSource

log = logging.getLogger(__name__)

Split = Literal["train", "val", "test"]

#: Names of the splits in messages.
SAID = {"train": "training", "val": "validation", "test": "test"}


class CloudSets(ABC):
    """A data set and its splits. Making one reads nothing; see docs/adding_a_data_set.md."""

    #: what a cloud is called in messages
    unit = "cloud"
    #: a warning where the test reads what validates
    note_on_test = ""
    #: predictions are ``.label`` files of 32-bit words, as SemanticKITTI's are
    word_labels = False
    #: the origin of every cloud was put into its middle; otherwise of those far from zero alone
    always_centred = False
    #: intensities are known to lie in 0..1
    unit_intensity = False

    @property
    @abstractmethod
    def label_map(self) -> LabelMap:
        """The classes, their colours, and their labels in the set's files."""

    @property
    @abstractmethod
    def found(self) -> DataSource:
        """Where the files lie, and whether they are simulated; simulates where that is due, once.

        Raises:
            FileNotFoundError: a folder that lacks something.
            ValueError: an unknown source, or a folder of the other kind.
        """

    @property
    @abstractmethod
    def tests_on_validation(self) -> bool:
        """True where the test reads the clouds of the validation."""

    @abstractmethod
    def find(self, split: Split) -> LabelledClouds | None:
        """Find the clouds of a split; None where it has none.

        Raises:
            FileNotFoundError: files are missing.
            ValueError: an unknown option, or data of the other kind.
        """

    def class_of(self, name: str) -> int:
        """Class of a whole cloud by its name, 0..C-1, for a classification.

        Raises:
            ValueError: the name tells none.
        """
        raise ValueError(f"{name}: clouds of this set have no class as a whole")

    def to_raw(self, labels: np.ndarray) -> np.ndarray:
        """Translate train ids ([P], 0..C-1 or 255) into the labels that the set's files use."""
        return self.label_map.decode(labels)

    def prediction_path(self, name: str) -> Path:
        """Return where the set's layout wants the predicted labels of a cloud, relative."""
        return Path(f"{name}.label")


def parts_there(
    root: Path,
    split: Split,
    wanted: Sequence[int],
    is_there: Callable[[int], bool],
    kind: str,
    allow_missing: bool,
) -> tuple[int, ...]:
    """The wanted parts of a split that the root holds; all, where none may be missing.

    Args:
        root: folder of the set.
        split: train, val or test.
        wanted: numbers of the parts.
        is_there: whether the root holds a part.
        kind: what parts are called, ``sequences`` or ``areas``.
        allow_missing: whether the others are used where some are missing.

    Raises:
        FileNotFoundError: parts may be missing, and no part to train on is there.
    """
    found = tuple(part for part in wanted if is_there(part))
    missing = ", ".join(str(part) for part in wanted if part not in found)
    if not missing or not allow_missing:
        return tuple(wanted)  # who reads them names what is missing
    if found:
        log.warning("%s: no %s %s; %s uses the others", root, kind, missing, split)
    elif split == "train":
        raise FileNotFoundError(
            f"{root} holds none of the {kind} to train on ({missing}); choose "
            f"dataset.train_{kind} among those that are there"
        )
    else:
        log.warning(
            "%s: none of the %s of the %s split is there (%s)%s",
            root,
            kind,
            SAID[split],
            missing,
            without_figures(split),
        )
    return found


def warn_left_out(root: Path, names: Sequence[str], total: int, why: str) -> None:
    """Say in the log which clouds of a root are left out; of many, the first twenty."""
    shown = 20
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    listed = ", ".join(names[:shown]) + more
    log.warning("%s: %d of %d %s and are left out: %s", root, len(names), total, why, listed)


def without_figures(split: Split) -> str:
    """The end of a message about a split without clouds."""
    return "; last.ckpt is the result, without figures" if split == "val" else ""
