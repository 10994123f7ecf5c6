"""CUDA kernels by the name of their source, compiled when they are first asked for."""

from __future__ import annotations

import functools
from typing import Protocol

import torch

from pcnn.kernels.structs import Module


class Loader(Protocol):
    """Makes modules for one type of device; called once a launch, so it remembers them."""

    def __call__(self, source: str, device: torch.device, **defines: int) -> Module:
        """Return the module of a source."""


def module(source: str, device: torch.device, **defines: int) -> Module:
    """Kernels of a CUDA source for a device: compiled once, then remembered."""
    loader = LOADERS.get(device.type)
    if loader is None:
        raise ValueError(
            f"{source} holds CUDA kernels, but its tensors are on {device}: kernels need a CUDA "
            "device. engine='auto' and engine='reference' serve the CPU."
        )
    return loader(source, device, **defines)


def load(source: str, device: torch.device, **defines: int) -> Module:
    """Load a source for a CUDA device."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return _loaded(source, index, tuple(defines.items()))


@functools.cache
def _loaded(source: str, index: int, defines: tuple[tuple[str, int], ...]) -> Module:
    from pcnn.kernels.compiler import architecture, cubin
    from pcnn.kernels.launch import CudaModule

    arch = architecture(torch.cuda.get_device_capability(index))
    code = cubin(source, arch, dict(defines))
    return CudaModule(source, torch.device("cuda", index), dict(defines), code)


#: Loader of each type of device. Tests add the CPU, through an emulator.
LOADERS: dict[str, Loader] = {"cuda": load}
