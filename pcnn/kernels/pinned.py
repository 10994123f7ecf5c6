"""Numbers that kernels write straight into the host's memory."""

from __future__ import annotations

import torch
from torch import Tensor


def words(n: int, device: torch.device) -> Tensor:
    """``[n]`` int32 on the host that kernels of a device can write.

    CUDA addresses page-locked memory as its own, so no copy is launched.
    """
    return torch.empty(n, dtype=torch.int32, pin_memory=device.type == "cuda")


def read(numbers: Tensor, device: torch.device) -> list[int]:
    """Wait until a device has done what it was given so far, and return what it has written.

    Args:
        numbers: page-locked memory that kernels on the current stream write.
        device: whose current stream that is.
    """
    if device.type == "cuda":
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(device))
        done.synchronize()
    return [int(value) for value in numbers.tolist()]
