"""Launches beside those of the current stream, in graphs as outside of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Beside:
    """A second stream, for what the next launches do not wait for.

    Memory that is made inside a branch belongs to the second stream: before it is freed, `join`.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._streams: tuple[torch.cuda.Stream, torch.cuda.Stream] | None = None
        if device is not None and device.type == "cuda":
            self._streams = torch.cuda.current_stream(device), torch.cuda.Stream(device)
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
