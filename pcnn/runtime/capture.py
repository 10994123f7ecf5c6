"""CUDA graphs of functions that write to the same memory at every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

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

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Figures]) -> Callable[[], Figures]:
        """See `Capture`."""
        graph = torch.cuda.CUDAGraph()
        # other threads, as of data loaders, may allocate meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            figures = work()

        def replay() -> Figures:
            graph.replay()
            return {name: value.clone() for name, value in figures.items()}

        return replay
