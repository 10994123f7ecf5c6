"""Batches on their way from a worker process: one piece of memory, made before the worker starts.

A tensor that a process sends takes a file of shared memory: for every batch it is made, sent by a
socket and mapped, and its pages are made on both sides. For batches of 8 MB that takes longer than
a step of a small network. Here all tensors of a batch lie in one part of memory that was made
before, and a message says which part to read.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

#: Tensors begin at multiples of so many bytes, which serves every dtype and wide copies.
_ALIGNED = 64
#: Bytes of a part: address space; memory is taken where batches are written.
ROOM = 128 << 20


class BatchMemory:
    """Parts of shared memory, some for every worker process of a loader."""

    #: memory in use by its key, which is the same number in a forked process
    known: ClassVar[WeakValueDictionary[int, BatchMemory]] = WeakValueDictionary()

    def __init__(self, workers: int, each: int, room: int = ROOM) -> None:
        self._each = each
        self.parts = torch.frombuffer(mmap.mmap(-1, workers * each * room), dtype=torch.uint8)
        self.parts = self.parts.view(workers * each, room)  # [parts, bytes]
        # number of the batch that a part holds, 0: none
        self.holds = np.frombuffer(mmap.mmap(-1, 8 * workers * each), np.int64)
        self._made = 0
        self.known[id(self)] = self

    def part(self, worker: int, size: int) -> Part | None:
        """Return memory for the next batch of a worker; None where it has none free or so large."""
        own = self.holds[worker * self._each : (worker + 1) * self._each]
        free = np.flatnonzero(own == 0)
        if not len(free) or size > self.parts.shape[1]:
            return None
        self._made += 1
        index = worker * self._each + int(free[0])
        self.holds[index] = self._made
        return Part((id(self), index, self._made, size), arrived=False)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        # a process that was not forked does not have this memory
        return type(None), ()


class Part:
    """Memory of a batch; in the process where it arrived it is free for others once taken."""

    def __init__(self, place: tuple[int, int, int, int], arrived: bool = True) -> None:
        self._place, self._arrived = place, arrived
        key, self.index, self.number, size = place
        self._source = BatchMemory.known[key]
        self.memory = self._source.parts[self.index, :size]

    def __reduce__(self) -> tuple[type[Part], tuple[tuple[int, int, int, int]]]:
        return Part, (self._place,)

    def take(self, pinned: bool) -> Tensor:
        """Return a copy, in page-locked memory or not; once."""
        if not self._held():
            raise RuntimeError("this batch was taken before: its memory may hold another one now")
        own = torch.empty(len(self.memory), dtype=torch.uint8, pin_memory=pinned)
        # by one thread: those of torch would wait for cores that the workers use
        np.copyto(own.numpy(), self.memory.numpy())
        self._source.holds[self.index] = 0
        return own

    def _held(self) -> bool:
        return bool(self._source.holds[self.index] == self.number)

    def __del__(self) -> None:
        # a pass that ends early leaves batches that are never taken
        if self._arrived and self._held():
            self._source.holds[self.index] = 0


Place = tuple[torch.dtype, tuple[int, ...], int]


@dataclass(frozen=True, eq=False)
class Packed:
    """An object whose tensors lie in one buffer."""

    content: bytes  # the object, pickled without its tensors
    places: Sequence[Place]  # dtype, shape and first byte of the tensors, as they were met
    # [bytes] uint8; torch would make a file of shared memory for a tensor
    buffer: np.ndarray | Part

    @classmethod
    def of(cls, batch: Any, memory: BatchMemory | None = None) -> Packed:
        """Pack an object that can be pickled; its CPU tensors are copied once."""
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(batch)
        places: list[Place] = []
        size = 0
        for tensor in pickler.tensors:
            places.append((tensor.dtype, tuple(tensor.shape), size))
            size += math.ceil(tensor.nbytes / _ALIGNED) * _ALIGNED
        worker = get_worker_info()
        part = None if memory is None or worker is None else memory.part(worker.id, size)
        buffer = torch.empty(size, dtype=torch.uint8) if part is None else part.memory
        for tensor, place in zip(pickler.tensors, places, strict=True):
            _view(buffer, *place).copy_(tensor.detach())
        return cls(file.getvalue(), places, part or buffer.numpy())

    def unpack(self, pinned: bool = False) -> Any:
        """Return the object; its tensors are views of one buffer, page-locked or not."""
        if isinstance(self.buffer, Part):
            buffer = self.buffer.take(pinned)
        else:
            buffer = torch.from_numpy(self.buffer)
            buffer = buffer.pin_memory() if pinned else buffer
        tensors = [_view(buffer, *place) for place in self.places]
        unpickler = pickle.Unpickler(io.BytesIO(self.content))
        unpickler.persistent_load = tensors.__getitem__  # type: ignore[method-assign]
        return unpickler.load()

    def pin_memory(self) -> Any:
        """What a loader that pins gives: the object itself."""
        return self.unpack(pinned=True)


@dataclass(frozen=True)
class CollatePacked:
    """Collates, and packs what a worker process sends."""

    collate: Callable[[Sequence[Any]], Any]  # turns a list of samples into a batch
    memory: BatchMemory | None = None  # that the worker processes share with the loader's, or None

    def __call__(self, samples: Sequence[Any]) -> Any:
        batch = self.collate(samples)
        return batch if get_worker_info() is None else Packed.of(batch, self.memory)


def unpacked(batch: Any) -> Any:
    return batch.unpack() if isinstance(batch, Packed) else batch


def _view(buffer: Tensor, dtype: torch.dtype, shape: tuple[int, ...], start: int) -> Tensor:
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    return buffer[start : start + size].view(dtype).view(shape)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Tensor or obj.device.type != "cpu" or obj.layout != torch.strided:
            return None
        if id(obj) not in self._numbers:  # the list keeps it, so that its id stays its own
            self._numbers[id(obj)] = len(self.tensors)
            self.tensors.append(obj)
        return self._numbers[id(obj)]
