"""Work done on all samples of a set ahead of a training, in several processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset

from pcnn.cores import available_cores
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.errors import UNREADABLE, FileError

State = Literal["made", "kept", "checked", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The result of a sample."""

    name: str  # of the sample
    state: State  # made; kept, it was there; checked, it was read and nothing else; failed
    problem: str = ""  # why it failed, with the name of the file
    notes: tuple[str, ...] = ()  # what was odd about it


class Preparation(ABC):
    """Work on the samples 0..n-1 of a set; each is done whole or not at all."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abstractmethod
    def name(self, index: int) -> str:
        """Name of a sample."""

    @abstractmethod
    def do(self, index: int) -> tuple[State, tuple[str, ...]]:
        """Do the work of a sample, unless it was done."""


@dataclass(frozen=True)
class OfClouds(Preparation):
    """Work on the clouds of a set."""

    dataset: CloudDataset  # the set

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        """Name of a cloud."""
        return self.dataset.name(index)


class FillCache(OfClouds):
    """Put the training clouds of a set, made with a cache, into it."""

    def do(self, index: int) -> tuple[State, tuple[str, ...]]:
        """Read, crop and reduce a cloud, and write it into the cache."""
        cloud, was_there = self.dataset.keep(index)
        return "kept" if was_there else "made", _notes(cloud)


class ReadAll(OfClouds):
    """Read the clouds of a set that are kept nowhere, so that broken ones show."""

    def do(self, index: int) -> tuple[State, tuple[str, ...]]:
        """Read a cloud."""
        return "checked", _notes(self.dataset.read(index))


def prepared(work: Sequence[Preparation], workers: int | None = None) -> Iterator[Outcome]:
    """Do all work, one sample after the other in every process."""
    if workers is not None and workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")
    tasks = _Tasks(work)
    processes = min(available_cores() if workers is None else workers, len(tasks))
    ahead = 4 if processes else None  # the others do not wait for large samples of one
    yield from DataLoader(
        tasks,
        batch_size=None,
        num_workers=processes,
        collate_fn=_itself,
        prefetch_factor=ahead,
    )


def _notes(cloud: Cloud) -> tuple[str, ...]:
    """Notes on an odd cloud; FileError where it holds no points."""
    if not cloud.n_points:
        beyond = f" within the crop, {cloud.n_points_total} beyond" if cloud.n_points_total else ""
        raise FileError(cloud.path, f"no points{beyond}")
    notes = []
    if cloud.labels is None or bool((cloud.labels == IGNORE).all()):
        notes.append(f"{cloud.path}: no labelled point")
    return tuple(notes)


class _Tasks(Dataset[Outcome]):
    def __init__(self, work: Sequence[Preparation]) -> None:
        self._tasks = [(part, index) for part in work for index in range(len(part))]

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, number: int) -> Outcome:
        part, index = self._tasks[number]
        name = part.name(index)
        try:
            state, notes = part.do(index)
        except UNREADABLE as error:
            said = str(error)
            known = name.rpartition("/")[2] in said
            return Outcome(name, "failed", said if known else f"{name}: {said}")
        return Outcome(name, state, notes=notes)


def _itself(outcome: Any) -> Any:
    return outcome
