"""Sets of labelled clouds by split, and the folder of a set: real or simulated, by one rule.

`sets:` in the configuration of a data set names a `CloudSets`.
"""

from __future__ import annotations

import logging
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pcnn.datasets.cloud_dataset import LabelledClouds
from pcnn.datasets.labels import LabelMap
from pcnn.files.simulated import kind_of

log = logging.getLogger(__name__)

Kind = Literal["real", "simulated"]

SOURCES = ("auto", "real", "simulated")


@dataclass(frozen=True)
class DataSource:
    """A folder that holds a data set, and what it holds."""

    root: Path  # the folder
    kind: Kind  # simulated when the folder, or one above it, holds a SIMULATED.json


@dataclass(frozen=True)
class Published:
    """A published data set, which is simulated where it is absent."""

    name: str  # the set, for messages
    folder: str  # where it is expected below data_dir
    simulator: str  # dotted name of its pcnn.simulate.simulator.Simulator
    steps: str  # how to get the real set, for errors

    def found(
        self,
        root: str | None,
        source: str,
        data_dir: str,
        arguments: Mapping[str, Any] | None,
        required: Sequence[str] = (),  # files and folders of the root
    ) -> DataSource:
        """Decide which folder the set is read from, and simulate one if that is what is asked for.

        * ``auto``: the given root; else the default root where it exists; else simulated data.
        * ``real``: the given root or the default root, which must hold real data.
        * ``simulated``: the given root, which must hold such data; else what the simulator writes.

        A root that lacks something is never replaced by simulated data, which the log announces.
        """
        if source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, got {source!r}")
        default = Path(data_dir) / self.folder
        chosen = Path(root) if root is not None else default
        if root is None and (source == "simulated" or (source == "auto" and not chosen.exists())):
            if source == "auto":
                log.warning("%s: no root was given and %s does not exist", self.name, default)
            given = dict(arguments or {})
            simulator = pkgutil.resolve_name(self.simulator)  # no real set imports it
            chosen = Path(simulator.write(simulator.folder(Path(data_dir), given), **given))
        if not chosen.is_dir():
            raise FileNotFoundError(f"{self.name}: {chosen} is not a folder. {self.steps}")
        missing = [path for path in required if not (chosen / path).exists()]
        if missing:
            lacks = f"{self.name}: {chosen} lacks {', '.join(missing)}"
            raise FileNotFoundError(f"{lacks}. {self.steps}")
        kind = kind_of(chosen)
        if source not in ("auto", kind):
            raise ValueError(f"{self.name}: source={source}, but {chosen} holds {kind} data")
        if kind == "simulated":
            text = "%s: SIMULATED data from %s; results say nothing of real scans"
            log.warning(text, self.name, chosen)
        else:
            log.info("%s: real data from %s", self.name, chosen)
        return DataSource(chosen, kind)


Split = Literal["train", "val", "test"]

#: names of the splits in messages
SPLIT_NAMES = {"train": "training", "val": "validation", "test": "test"}


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
    #: the origin of every cloud is in the middle of its box along x and y, and at its lowest point
    on_floor = False
    #: intensities are known to lie in 0..1
    unit_intensity = False
    #: channels besides x, y, z where they are the same in all clouds; None: the clouds are asked
    known_channels: Sequence[str] | None = None

    @property
    @abstractmethod
    def label_map(self) -> LabelMap:
        """The classes, their colours, and their labels in the set's files."""

    @property
    @abstractmethod
    def found(self) -> DataSource:
        """The folder of the files, and their kind; where there is none, it is simulated once."""

    @property
    @abstractmethod
    def tests_on_validation(self) -> bool:
        """True where the test reads the clouds of the validation."""

    @abstractmethod
    def find(self, split: Split) -> LabelledClouds | None:
        """Find the clouds of a split; None where it has none."""


def warn_left_out(root: Path, names: Sequence[str], total: int, why: str) -> None:
    """Say in the log which clouds of a root are left out; of many, the first twenty."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    listed = ", ".join(names[:20]) + more
    log.warning("%s: %d of %d %s and are left out: %s", root, len(names), total, why, listed)


def without_figures(split: Split) -> str:
    """The end of a message about a split without clouds."""
    return "; last.ckpt is the result, without figures" if split == "val" else ""
