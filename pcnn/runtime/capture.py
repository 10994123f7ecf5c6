"""CUDA graphs of functions that write to the same memory at every call."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

Figures = dict[str, Tensor]


class Capture(Protocol):
    """Makes a function that does again what another did, on the same memory."""

    def __call__(self, work: Callable[[], Figures]) -> Callable[[], Figures]:
        """Capture a function that has run before, with everything it needs in place.

        Args:
            work: launches device work alone, on tensors of fixed size, and waits for nothing.

        Returns:
            Does the work, and returns its figures on memory of their own.
        """


class CudaGraphs:
    """Captures CUDA graphs that share the memory of their temporary tensors.

    So one at a time may run, and what it leaves is copied before the next one does.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        # torch's own stream for captures is of one device, whichever the launches are on
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._first: torch.cuda.CUDAGraph | None = None

    def __call__(self, work: Callable[[], Figures]) -> Callable[[], Figures]:
        """See `Capture`."""
        if self._first is None:  # the memory of graphs ends with the last of them: one stays
            self._first = torch.cuda.CUDAGraph()
            with capturing(self._first, self._pool, self._stream):
                torch.zeros(1, device=self._stream.device)
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, self._pool, self._stream):
            figures = work()

        def replay() -> Figures:
            graph.replay()
            return {name: value.clone() for name, value in figures.items()}

        return replay


def failure_of(error: RuntimeError) -> str:
    """Why a network cannot be captured, told by the error of the attempt."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause
        cause = cause.__context__  # the end of a capture that failed fails too
    return f"it waits for the device ({str(error).splitlines()[0]})"


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any, stream: torch.cuda.Stream) -> Iterator[None]:
    """Inside, launches of this thread become a graph; other threads may allocate meanwhile.

    No garbage is collected: where a graph is part of it, its end is an error of the capture.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        settings: Any = {"pool": pool, "stream": stream, "capture_error_mode": "thread_local"}
        with torch.cuda.device(stream.device), torch.cuda.graph(graph, **settings):
            yield
    finally:
        if collects:
            gc.enable()
