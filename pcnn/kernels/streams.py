"""Streams of our own, launches beside those of the current stream, and numbers for the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")

_OWN = threading.local()


def own_stream(device: torch.device, use: str) -> torch.cuda.Stream:
    """This thread's stream for a use, which nothing else launches on.

    torch deals the same 32 streams in turn, so one of them may be another thread's as well: what
    that launches while this thread captures a graph becomes part of the graph, and does not run.
    """
    from pcnn.kernels.launch import new_stream

    index = torch.cuda.current_device() if device.index is None else device.index
    streams: dict[tuple[int, str], torch.cuda.Stream] = vars(_OWN).setdefault("streams", {})
    found = streams.get((index, use))
    if found is None:
        found = torch.cuda.ExternalStream(new_stream(index), device=torch.device("cuda", index))
        streams[index, use] = found
    return found


class Beside:
    """A second stream, for what the next launches do not wait for.

    Memory that is made inside a branch belongs to the second stream: before it is freed, `join`.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._streams: tuple[torch.cuda.Stream, torch.cuda.Stream] | None = None
        if device is not None and device.type == "cuda":
            self._streams = torch.cuda.current_stream(device), own_stream(device, "beside")
        self._kept: list[object] = []

    @contextmanager
    def branch(self, *kept: object) -> Iterator[None]:
        """Launch beside what follows, behind all that was launched so far."""
        if self._streams is None:
            yield
            return
        current, side = self._streams
        self._kept += [side, *kept]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            yield

    def join(self) -> None:
        """Let what follows wait for all branches."""
        if self._streams is not None and self._kept:
            current, side = self._streams
            current.wait_stream(side)
            self._kept.clear()


class SideStream:
    """Work on a batch that overtakes the steps launched before it.

    The host is ahead of the device: when it fetches a batch, the last step is still running. A plan
    on the same stream would wait for that step before its counts are there. On a stream of its own
    it waits for nothing but the batch.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = own_stream(device, "batch")

    def run(
        self, prepare: Callable[[], Batch], tensors: Callable[[Batch], Iterable[Tensor]]
    ) -> Batch:
        """Prepare a batch on the side stream and hand it to the current one."""
        with torch.cuda.stream(self._stream):
            batch = prepare()
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self._stream)
        for tensor in tensors(batch):
            if tensor.device.type == "cuda":
                tensor.record_stream(current)
        return batch


def read_copy(numbers: Tensor) -> list[int]:
    """A few integers of a device."""
    found: list[int] = host_copy(numbers).tolist()
    return found


def host_copy(numbers: Tensor) -> Tensor:
    """Copy a few integers to page-locked memory of the host, and wait for them alone."""
    host = page_locked(numbers.shape[0], numbers.device, numbers.dtype)
    host.copy_(numbers, non_blocking=True)
    wait_for(numbers.device)
    return host


def page_locked(n: int, device: torch.device, dtype: torch.dtype = torch.int32) -> Tensor:
    """``[n]`` integers on the host that kernels of a device can write."""
    return torch.empty(n, dtype=dtype, pin_memory=device.type == "cuda")


def wait_for(device: torch.device) -> None:
    """Wait for what the current stream of a device was given so far."""
    if device.type == "cuda":
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(device))
        done.synchronize()
