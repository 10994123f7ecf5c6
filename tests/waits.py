"""Tests in which the host waits for nothing, and those that run by torch and by device kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def nothing_waits(device: torch.device | str = "cuda") -> Iterator[None]:
    """Torch refuses to wait for a CUDA device; a wait behind an event stays unseen by it."""
    if torch.device(device).type != "cuda":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")
