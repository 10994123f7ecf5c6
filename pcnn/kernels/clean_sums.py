"""Float32 sums in memory that is zero before a product adds to it, and again behind its epilogue.

Memory that a product adds to has to be zero. In a graph the same memory serves one layer after
another: the kernel that reads the sums of one clears them, so no launch does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch
from torch import Tensor


class CleanSums:
    """Memory for the sums of one layer at a time.

    Args:
        device: where it is; the layers run on one stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._memory = torch.zeros(0, dtype=torch.float32, device=device)

    def take(self, rows: int, channels: int) -> Tensor:
        """Zeros ``[rows, channels]`` float32, which the caller clears behind their use.

        Layers must have been called once before a graph captures them: only then is the memory as
        large as it will be.
        """
        if self._memory.numel() < rows * channels:
            self._memory = self._memory.new_zeros(rows * channels)
        return self._memory[: rows * channels].view(rows, channels)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Let products of this thread take their sums here."""
        token = CLEAN.set(self)
        try:
            yield
        finally:
            CLEAN.reset(token)


#: Where products of this thread take their sums; ``None``: from the allocator, cleared first.
CLEAN: ContextVar[CleanSums | None] = ContextVar("clean sums", default=None)
