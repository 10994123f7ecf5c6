"""Data modules of published sets, in whose place simulated ones may stand."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from pcnn.datamodules.segmentation import SegmentationDataModule, Split
from pcnn.datasets.source import DataSource, Kind

log = logging.getLogger(__name__)


class SourcedDataModule(SegmentationDataModule):
    """A published set whose files are found, or simulated, before anything is read."""

    _source: DataSource | None = None
    #: whether parts of the set (sequences, areas) may be missing: the others are used
    allow_missing = False

    @abstractmethod
    def find(self) -> DataSource:
        """Decide where the files lie, and simulate them where that is due.

        Raises:
            FileNotFoundError: a folder that lacks something.
            ValueError: an unknown source, or a folder of the other kind.
        """

    @property
    def found(self) -> DataSource:
        """Where the files lie; made where that is due, once."""
        if self._source is None:
            self._source = self.find()
        return self._source

    @property
    def source_kind(self) -> Kind:
        """Whether the clouds are ``real`` or ``simulated``.

        Raises:
            RuntimeError: before `prepare_data` or `setup`.
        """
        return self._known().kind

    @property
    def data_root(self) -> Path:
        """The folder the clouds are read from; known after `prepare_data` or `setup`."""
        return self._known().root

    def parts_there(
        self, split: Split, wanted: Sequence[int], is_there: Callable[[int], bool], kind: str
    ) -> tuple[int, ...]:
        """The wanted parts of a split that the root holds; all, where none may be missing.

        Args:
            split: train, val or test.
            wanted: numbers of the parts.
            is_there: whether the root holds a part.
            kind: what parts are called, ``sequences`` or ``areas``.

        Raises:
            FileNotFoundError: parts may be missing, and no part to train on is there.
        """
        found = tuple(part for part in wanted if is_there(part))
        missing = [part for part in wanted if part not in found]
        if not missing or not self.allow_missing:
            return tuple(wanted)  # who reads them names what is missing
        absent = ", ".join(map(str, missing))
        if found:
            log.warning("%s: no %s %s; %s uses the others", self.data_root, kind, absent, split)
        elif split == "train":
            raise FileNotFoundError(
                f"{self.data_root} holds none of the {kind} to train on ({absent}); choose "
                f"dataset.train_{kind} among those that are there"
            )
        else:
            log.warning(
                "%s: none of the %s of the %s split is there (%s)%s",
                self.data_root,
                kind,
                {"val": "validation"}.get(split, split),
                absent,
                "; last.ckpt is the result, without figures" if split == "val" else "",
            )
        return found

    def prepare_data(self) -> None:
        """Simulate where that is due; called by one process of each machine."""
        _ = self.found

    def setup(self, stage: str | None = None) -> None:
        """Find the files of the splits that a stage needs."""
        _ = self.found
        super().setup(stage)

    def _known(self) -> DataSource:
        if self._source is None:
            raise RuntimeError("the data source is known after prepare_data() or setup()")
        return self._source
