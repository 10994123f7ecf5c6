"""Preparing a batch on a side stream, while the device works on the step before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

from pcnn.geometry import Geometry
from pcnn.kernels.beside import own_stream
from pcnn.tensor import SparseTensor

Batch = TypeVar("Batch")


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


def tensors_of(x: SparseTensor) -> Iterator[Tensor]:
    """All tensors of a sparse tensor, with the levels and maps of its geometry."""
    yield x.features
    yield from _tensors_of(x.geometry)


def _tensors_of(geometry: Geometry) -> Iterator[Tensor]:
    yield from geometry.tensors()
    for built in geometry.cached_maps():
        for layout in built.edges.layouts.values():
            yield from layout
    for level in geometry.levels().values():
        yield from _tensors_of(level)
