"""Samples that cannot be read: named, or skipped in training."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

from torch.utils.data import Dataset

from pcnn.datasets.sampler import Key
from pcnn.errors import UNREADABLE, UserError

log = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]

#: So many samples in a row that cannot be read mean that the disk is gone, not that files are bad.
_IN_A_ROW = 20


class SampleError(UserError):
    """A sample cannot be read; the text names the file, the rule it breaks, and what to do."""


class SkipBroken(Dataset[Any]):
    """A set whose unreadable samples are named, or replaced.

    With ``skip`` the next sample of the set that can be read takes the place of one that cannot, in
    the same epoch: batches stay as large as they are, and a pure function of (seed, position). Each
    is named once in every worker process.
    """

    def __init__(
        self, dataset: Dataset[Any], on_error: OnError = "raise", advice: str = ""
    ) -> None:
        self._dataset = dataset
        self._on_error = on_error
        self._advice = advice
        self._named: set[int] = set()

    def __len__(self) -> int:
        """Number of samples, the unreadable ones too."""
        return len(cast(Any, self._dataset))

    def __getitem__(self, key: Key) -> Any:
        """Return the sample of a key, or of the next index whose sample can be read."""
        epoch, first = key
        for step in range(_IN_A_ROW if self._on_error == "skip" else 1):
            index = (first + step) % len(self)
            try:
                return self._dataset[(epoch, index)]
            except UNREADABLE as error:
                refused: Exception = error
                self._say(index, error)
            except UserError as error:  # no file to repair, or to skip
                raise SampleError(str(error)) from error
        if self._on_error == "skip":
            raise SampleError(
                f"{refused}\n{_IN_A_ROW} samples in a row cannot be read"
            ) from refused
        raise SampleError(f"{refused}\nrepair or remove the file{self._advice}") from refused

    def _say(self, index: int, error: Exception) -> None:
        if self._on_error == "skip" and index not in self._named:
            self._named.add(index)
            log.warning("a sample is left out, and the next one takes its place: %s", error)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let a `SampleError` pass without the traceback that a worker process puts before its text."""
    try:
        yield
    except SampleError as error:
        text = str(error).rpartition(f"{SampleError.__name__}: ")[2]
        raise SampleError(text.strip()) from error
