"""Numbers on their way from a device to the host, by way of page-locked memory."""

from __future__ import annotations

import torch
from torch import Tensor


def words(n: int, device: torch.device, dtype: torch.dtype = torch.int32) -> Tensor:
    """``[n]`` integers on the host that kernels of a device can write."""
    return torch.empty(n, dtype=dtype, pin_memory=device.type == "cuda")


def read(numbers: Tensor, device: torch.device) -> list[int]:
    """Wait until a device has done what it was given so far, and return what it has written."""
    if device.type == "cuda":
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(device))
        done.synchronize()
    found: list[int] = numbers.tolist()
    return found


def read_copy(numbers: Tensor) -> list[int]:
    """Copy a few integers to the host, and wait for them alone."""
    host = words(numbers.shape[0], numbers.device, numbers.dtype)
    host.copy_(numbers, non_blocking=True)
    return read(host, numbers.device)
