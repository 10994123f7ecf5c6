"""Emptying the last-level cache between repeats."""

from __future__ import annotations

import torch

#: Bytes written at least; a few times the L2 of an H100 or H200 (50 and 60 MB).
FLUSH_BYTES = 256 << 20


class CacheFlush:
    """Writes a buffer larger than the cache, so that what was there before is evicted.

    Args:
        device: whose cache.
        size: bytes of the buffer; ``None``: 256 MiB, and at least four times a GPU's L2.
    """

    def __init__(self, device: torch.device, size: int | None = None) -> None:
        if size is None:
            size = FLUSH_BYTES
            if device.type == "cuda":
                size = max(size, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
        self._buffer = torch.zeros(size // 4, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        """Enqueue the write on the current stream; nothing waits."""
        self._buffer.add_(1)  # reads and writes, so that the lines are allocated either way
