"""CUDA graphs of functions that write to the same memory at every call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from pcnn.kernels.streams import own_stream

#: Device work alone, on memory that stays where it is, which waits for nothing.
Work = Callable[[], None]


class Capture(Protocol):
    """Makes a function that does again what another did, on the same memory."""

    def __call__(self, work: Work) -> Work:
        """Capture work that has run before, with everything it needs in place."""


class CudaGraphs:
    """Captures CUDA graphs that share the memory of their temporary tensors."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._first: torch.cuda.CUDAGraph | None = None

    @property
    def stream(self) -> torch.cuda.Stream:
        """Of captures by this thread, and of what runs once before them."""
        return own_stream(self._device, "capture")

    def __call__(self, work: Work) -> Work:
        """See `Capture`."""
        if self._first is None:  # the memory of graphs ends with the last of them: one stays
            self._first = torch.cuda.CUDAGraph()
            with capturing(self._first, self._pool, self.stream):
                torch.zeros(1, device=self.stream.device)
        graph = torch.cuda.CUDAGraph()
        try:
            with capturing(graph, self._pool, self.stream):
                work()
        except Exception:  # a pool whose capture has failed takes no other
            self._pool, self._first = torch.cuda.graph_pool_handle(), None
            raise
        replay: Work = graph.replay
        return replay


@contextmanager
def aside(stream: torch.cuda.Stream | None, device: torch.device) -> Iterator[None]:
    """On the stream of captures, behind all that was launched; the host waits at the end."""
    if stream is None:
        yield
        return
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
    torch.cuda.empty_cache()  # as captures do; what it gives back is not theirs


class NoGraph(Exception):
    """A network that cannot be captured; the message says why."""


def failure_of(error: Exception) -> str:
    """Why a network cannot be captured, told by the error of the attempt."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause
        cause = cause.__context__  # the end of a capture that failed fails too
    return f"it waits for the device ({(str(error) or type(error).__name__).splitlines()[0]})"


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> Iterator[None]:
    """Inside, launches of this thread become a graph; other threads may allocate meanwhile."""
    collects = gc.isenabled()
    gc.disable()
    try:
        settings: Any = {"pool": pool, "stream": stream, "capture_error_mode": "thread_local"}
        with torch.cuda.device(stream.device), torch.cuda.graph(graph, **settings):
            yield
    finally:
        if collects:
            gc.enable()
