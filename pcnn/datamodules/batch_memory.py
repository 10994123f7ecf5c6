"""Memory through which worker processes hand over batches: made before they start, used again.

A tensor that a process sends takes a file of shared memory: for every batch it is made, sent by a
socket and mapped, and its pages are made on both sides. For batches of 8 MB that takes longer than
a step of a small network. Here pages are made once, and a message says which of them to read.
"""

from __future__ import annotations

import mmap
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

#: Bytes of a part: address space; memory is taken where batches are written.
ROOM = 128 << 20


class BatchMemory:
    """Parts of shared memory, some for every worker process of a loader.

    Processes that are forked afterwards share it; no other process can.
    """

    #: memory in use by its key, which is the same number in a forked process
    _known: ClassVar[WeakValueDictionary[int, BatchMemory]] = WeakValueDictionary()

    def __init__(self, workers: int, each: int, room: int = ROOM) -> None:
        self._each = each
        self._parts = torch.frombuffer(mmap.mmap(-1, workers * each * room), dtype=torch.uint8)
        self._parts = self._parts.view(workers * each, room)  # [parts, bytes]
        # number of the batch that a part holds, 0: none
        self._holds = np.frombuffer(mmap.mmap(-1, 8 * workers * each), np.int64)
        self._made = 0
        self._known[id(self)] = self

    def part(self, worker: int, size: int) -> SentPart | None:
        """Return memory for the next batch of a worker; None where it has none free or so large."""
        own = self._holds[worker * self._each : (worker + 1) * self._each]
        free = np.flatnonzero(own == 0)
        if not len(free) or size > self._parts.shape[1]:
            return None
        self._made += 1
        index = worker * self._each + int(free[0])
        self._holds[index] = self._made
        return SentPart(self._parts[index, :size], (id(self), index, self._made, size))

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # a process that was not forked does not have this memory
        return type(None), ()


class SentPart:
    """Memory of a batch, where it is written; in the process that receives it, a `ReceivedPart`."""

    def __init__(self, memory: Tensor, place: tuple[int, int, int, int]) -> None:
        self.memory = memory
        self._place = place

    def __reduce__(self) -> tuple[type[ReceivedPart], tuple[int, int, int, int]]:
        return ReceivedPart, self._place


class ReceivedPart:
    """A batch that arrived, until it is taken; its memory is free for the next one after that."""

    def __init__(self, key: int, index: int, number: int, size: int) -> None:
        self._source = BatchMemory._known[key]
        self._index, self._number, self._size = index, number, size

    def take(self, pinned: bool) -> Tensor:
        """Return a copy, in page-locked memory or not; once."""
        if self._source._holds[self._index] != self._number:
            raise RuntimeError("this batch was taken before: its memory may hold another one now")
        own = torch.empty(self._size, dtype=torch.uint8, pin_memory=pinned)
        # by one thread: those of torch would wait for cores that the workers use
        np.copyto(own.numpy(), self._source._parts[self._index, : self._size].numpy())
        self._source._holds[self._index] = 0
        return own

    def __del__(self) -> None:
        # a pass that ends early leaves batches that are never taken
        if self._source._holds[self._index] == self._number:
            self._source._holds[self._index] = 0
