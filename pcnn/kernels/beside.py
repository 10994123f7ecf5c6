"""Streams of our own, and launches beside those of the current stream, in graphs as outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
