"""Loaders that put every batch where it belongs, whatever the trainer and the workers do.

Lightning counts batches but does not place a loader: after a restart it asks for a fresh iterator,
which would replay the first batches of an epoch. ``BatchStream`` therefore asks how many batches
were consumed since the start of training, and continues from there. Neither class is a
``DataLoader``, whose sampler, and with it the keys, Lightning would replace.
"""

from __future__ import annotations

import atexit
import logging
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, Dataset

from pcnn.datamodules.packed import BatchMemory, CollatePacked, unpacked
from pcnn.datasets.sampler import EpochSampler, EvaluationSampler, Key
from pcnn.errors import UserError

log = logging.getLogger(__name__)

#: Batches that a worker process makes before the first of them is asked for.
AHEAD = 2

Collate = Callable[[Sequence[Any]], Any]


class SampleError(UserError):
    """A sample cannot be read; the text names the file, the rule it breaks, and what to do."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let a `SampleError` pass without the traceback that a worker process puts before its text."""
    try:
        yield
    except SampleError as error:
        text = str(error).rpartition(f"{SampleError.__name__}: ")[2]
        raise SampleError(text.strip()) from error


def batches_done(trainer: Trainer) -> int:
    """Return how many training batches were completed since the start, also after a restart."""
    total: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    return int(total.processed)


@dataclass(eq=False)
class _Loading:
    """How batches are made: by so many processes, in page-locked memory or not."""

    samples: Dataset[Any]  # Lightning has plans of its own for a `dataset` and a `sampler`
    order: Any
    _: KW_ONLY
    collate: Collate
    num_workers: int = 0
    pin_memory: bool = False

    def loader(self, keys: Iterable[list[Key]], persistent: bool = False) -> DataLoader[Any]:
        memory, workers = None, self.num_workers
        if workers:
            try:
                # one more: a worker is given its next batch just before its last one is taken
                memory = BatchMemory(workers, AHEAD + 1)
            except OSError:  # a machine that promises no more memory than it has
                log.debug("batches are sent without memory of their own")
        return DataLoader(
            self.samples,
            batch_sampler=keys,  # type: ignore[arg-type]  # only iterated; it may have no end
            collate_fn=CollatePacked(self.collate, memory),
            num_workers=workers,
            prefetch_factor=AHEAD if workers else None,
            pin_memory=self.pin_memory,
            persistent_workers=persistent and workers > 0,
            worker_init_fn=leave_stop_signals,
            # a DataLoader draws a seed for its workers; not from the global stream, which belongs
            # to the network (dropout) and would differ by one draw after every restart
            generator=torch.Generator().manual_seed(0),
        )


@dataclass(eq=False)
class BatchStream(_Loading):
    """Training batches as one stream that any number of interruptions leaves unchanged.

    ``iter(stream)`` yields one epoch's number of batches, starting at ``position()``; the workers
    run on across the end of an epoch. Iterators are lazy: the position is read at the first batch.
    """

    order: EpochSampler
    _: KW_ONLY
    position: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        self._next = 0
        self.seconds_waited = 0.0
        # this name is where Lightning's teardown looks for worker processes to stop
        self._iterator: Iterator[Any] | None = None

    def __len__(self) -> int:
        return self.order.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        position = self._next if self.position is None else self.position()
        if position != self._next:
            self._iterator, self._next = None, position
        for _ in range(len(self)):
            began = time.perf_counter()
            if self._iterator is None:
                self._iterator = iter(self.loader(self.order.batches(self._next)))
            with plain_errors():
                batch = unpacked(next(self._iterator))
            self._next += 1
            self.seconds_waited += time.perf_counter() - began
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Return what fixes the sequence of batches; the position is the trainer's to keep."""
        return self.order.fingerprint()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Compare with the interrupted run and warn when the sequence cannot be the same."""
        mine = self.order.fingerprint()
        changed = [f"{k} {state[k]} -> {mine[k]}" for k in mine if state.get(k, mine[k]) != mine[k]]
        if changed:
            text = "resumed with another training set-up (%s), so not with the same batches"
            log.warning(text, ", ".join(changed))


@dataclass(eq=False)
class EvaluationLoader(_Loading):
    """One exact pass over a set: no sample padded, dropped or repeated, in order."""

    order: EvaluationSampler

    def __post_init__(self) -> None:
        self._loader = self.loader(self.order, persistent=True)

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Any]:
        with plain_errors():
            for batch in self._loader:
                yield unpacked(batch)

    # Lightning's teardown stops the worker processes it finds under this name
    @property
    def _iterator(self) -> Any:
        return self._loader._iterator

    @_iterator.setter
    def _iterator(self, value: Any) -> None:
        self._loader._iterator = value


#: 1 when the process ends; worker processes that it forked see that.
_OVER = mmap.mmap(-1, 1)


@atexit.register  # in front of multiprocessing's own, which waits for the workers
def _end_workers() -> None:
    _OVER[0] = 1


def leave_stop_signals(worker: int) -> None:
    """Let a worker outlive Ctrl-C and the first SIGTERM."""

    def receive(signum: int, frame: FrameType | None) -> None:
        if _OVER[0]:
            os._exit(0)
        signal.signal(signum, signal.SIG_DFL)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, receive)
