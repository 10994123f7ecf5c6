"""Clouds of a training read ahead of it, in several processes: caches are filled, damages found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset

from pcnn.cores import available_cores
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.errors import UNREADABLE

State = Literal["made", "kept", "checked", "failed"]


@dataclass(frozen=True)
class Outcome:
    state: State  # made; kept, it was there; checked, it was read and nothing else; failed
    text: str = ""  # why it failed, or what was odd about it, with the name of the file


class Preparation(Dataset[Outcome]):
    """Puts training clouds into their cache, and reads those that are kept nowhere."""

    def __init__(self, train: CloudDataset | None, val: CloudDataset | None) -> None:
        self.train, self.val = train, val
        self._kept = 0 if train is None else len(train)

    def __len__(self) -> int:
        return self._kept + (0 if self.val is None else len(self.val))

    def __getitem__(self, number: int) -> Outcome:
        """Do the work of a cloud, unless it was done; whole or not at all."""
        keeping = number < self._kept
        dataset: Any = self.train if keeping else self.val
        index = number if keeping else number - self._kept
        name = dataset.name(index)
        state: State = "checked"
        try:
            if keeping:
                cloud, was_there = dataset.keep(index)
                state = "kept" if was_there else "made"
            else:
                cloud = dataset.read(index)
        except UNREADABLE as error:
            said = str(error)
            return Outcome("failed", said if name.rpartition("/")[2] in said else f"{name}: {said}")
        if not cloud.n_points:
            return Outcome("failed", f"{cloud.path}: no points of {cloud.n_points_total} are left")
        labelled = cloud.labels is not None and bool((cloud.labels != IGNORE).any())
        return Outcome(state, "" if labelled else f"{cloud.path}: no labelled point")

    def done(self, workers: int | None = None) -> Iterator[Outcome]:
        """Do all work, in order, in so many processes; None: one a core, 0: this one alone."""
        processes = min(available_cores() if workers is None else workers, len(self))
        yield from DataLoader(
            self,
            batch_size=None,
            num_workers=processes,
            prefetch_factor=4 if processes else None,  # no process waits for large clouds of one
        )
