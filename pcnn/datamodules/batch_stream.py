"""Loaders that put every batch where it belongs, whatever the trainer and the workers do.

Lightning counts batches but does not place a loader: after a restart it asks for a fresh iterator,
which would replay the first batches of an epoch. ``BatchStream`` therefore asks how many batches
were consumed since the start of training, and continues from there.

Neither class is a ``DataLoader``: Lightning would replace a DataLoader's sampler (by a padded
distributed one, or by a sequential one under ``overfit_batches``) and with it the keys.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, Dataset

from pcnn.datamodules.packed import BatchMemory, CollatePacked, unpacked
from pcnn.datamodules.unreadable import plain_errors
from pcnn.datasets.sampler import EpochSampler, EvaluationSampler, Key

log = logging.getLogger(__name__)

#: Batches that a worker process makes before the first of them is asked for.
AHEAD = 2

Collate = Callable[[Sequence[Any]], Any]


def batches_done(trainer: Trainer) -> int:
    """Return how many training batches were completed since the start, also after a restart.

    It is restored from a checkpoint before the loaders are made. The count since the start is used
    and not the one within the epoch: the latter is reset or not after a restart, depending on
    where in the epoch the checkpoint fell and on ``max_steps``.
    """
    total: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    return int(total.processed)


class BatchStream:
    """Training batches as one stream that any number of interruptions leaves unchanged.

    ``iter(stream)`` yields one epoch's number of batches, starting at ``position()``; the workers
    run on across the end of an epoch. Iterators are lazy: the position is read at the first batch.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: EpochSampler,
        *,
        position: Callable[[], int] | None = None,
        collate: Collate,
        num_workers: int = 0,
        pin_memory: bool = False,
        first: int | float | None = None,
    ) -> None:
        self._dataset = dataset
        self._sampler = sampler
        self._first = _count(first, sampler.batches_per_epoch)
        self._position = position
        self._collate = collate
        self._num_workers = num_workers
        self._pin_memory = pin_memory
        self._next = 0
        self.seconds_waited = 0.0
        # this name is where Lightning's teardown looks for worker processes to stop
        self._iterator: Iterator[Any] | None = None

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        return self._sampler.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """Yield ``len(self)`` batches from the current position on."""
        if self._position is not None:
            self._seek(self._position())
        for _ in range(len(self)):
            began = time.perf_counter()
            if self._iterator is None:
                self._iterator = self._load()
            with plain_errors():
                batch = unpacked(next(self._iterator))
            self._next += 1
            self.seconds_waited += time.perf_counter() - began
            yield batch

    def _seek(self, position: int) -> None:
        if position != self._next:
            self._iterator = None
            self._next = position

    def _load(self) -> Iterator[Any]:
        keys = _KeysFrom(self._sampler, self._next, self._first)
        return iter(
            _loader(self._dataset, keys, self._collate, self._num_workers, self._pin_memory, False)
        )

    def state_dict(self) -> dict[str, int]:
        """Return what fixes the sequence of batches; the position is the trainer's to keep."""
        return self._sampler.fingerprint()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Compare with the interrupted run and warn when the sequence cannot be the same."""
        mine = self._sampler.fingerprint()
        changed = [f"{k} {state[k]} -> {mine[k]}" for k in mine if state.get(k, mine[k]) != mine[k]]
        if changed:
            log.warning(
                "resumed with another training set-up (%s): training goes on, but not with the "
                "batches the interrupted run would have seen",
                ", ".join(changed),
            )


class EvaluationLoader:
    """One exact pass over a set: no sample padded, dropped or repeated, in order."""

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: EvaluationSampler,
        *,
        collate: Collate,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        self._sampler = sampler
        self._loader = _loader(dataset, sampler, collate, num_workers, pin_memory, num_workers > 0)

    def __len__(self) -> int:
        """Number of batches of a pass, the same on every rank."""
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass."""
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
    """Let a worker outlive Ctrl-C and the first SIGTERM.

    Both reach all processes of a run, and this one's parent needs batches until it has come to a
    step at which it can stop. A SIGTERM ends the worker when the parent ends, or when it is the
    second one.
    """

    def receive(signum: int, frame: FrameType | None) -> None:
        if _OVER[0]:
            os._exit(0)
        signal.signal(signum, signal.SIG_DFL)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, receive)


class _KeysFrom:
    """The batches of keys of a sampler from a position on, as a batch sampler."""

    # with `first` batches of every epoch only, epoch e has the positions e * first, ...

    def __init__(self, sampler: EpochSampler, position: int, first: int) -> None:
        self._sampler = sampler
        self._position = position
        self._first = first

    def __iter__(self) -> Iterator[list[Key]]:
        epoch, offset = divmod(self._position, self._first)
        for number in itertools.count(epoch):
            start = number * self._sampler.batches_per_epoch
            batches = self._sampler.batches(start + offset)
            yield from itertools.islice(batches, self._first - offset)
            offset = 0


def _count(first: int | float | None, batches: int) -> int:
    if first is None:
        return batches
    return min(batches, max(1, first if isinstance(first, int) else int(first * batches)))


def _memory(num_workers: int) -> BatchMemory | None:
    try:
        # one more: a worker is given its next batch just before its last one is taken
        return BatchMemory(num_workers, AHEAD + 1) if num_workers else None
    except OSError:  # a machine that promises no more memory than it has
        return None


def _loader(
    dataset: Dataset[Any],
    keys: _KeysFrom | EvaluationSampler,
    collate: Collate,
    num_workers: int,
    pin_memory: bool,
    persistent: bool,
) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_sampler=keys,  # type: ignore[arg-type]  # only iterated; an endless one has no length
        collate_fn=CollatePacked(collate, _memory(num_workers)),
        num_workers=num_workers,
        prefetch_factor=AHEAD if num_workers else None,
        pin_memory=pin_memory,
        persistent_workers=persistent,
        worker_init_fn=leave_stop_signals,
        # a DataLoader draws a seed for its workers; not from the global stream, which belongs to
        # the network (dropout) and would differ by one draw after every restart
        generator=torch.Generator().manual_seed(0),
    )
