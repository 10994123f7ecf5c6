"""Devices by their names."""

from __future__ import annotations

import torch

from pcnn.messages import counted


def device_of(name: str) -> torch.device:
    """A device by its name; ``auto`` is the first GPU, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # which is refused, too
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {name}: must be cpu, cuda, cuda:1 or auto")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        seen = counted(torch.cuda.device_count(), "CUDA device")
        raise ValueError(f"device {name}: torch sees {seen} (pcnn doctor says more)")
    return device


def precision_on(device: torch.device, given: str) -> str:
    """A trainer's precision on a device: loss scaling, ``16-mixed``, is of CUDA alone."""
    return "32-true" if given in ("16", "16-mixed") and device.type != "cuda" else given
