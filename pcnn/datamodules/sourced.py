"""Data modules of published sets, in whose place simulated ones may stand."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from pcnn.datamodules.segmentation import SegmentationDataModule
from pcnn.datasets.source import DataSource, Kind


class SourcedDataModule(SegmentationDataModule):
    """A published set whose files are found, or simulated, before anything is read."""

    _source: DataSource | None = None

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
