"""CUDA kernels by the name of their source, compiled when they are first asked for."""

from __future__ import annotations

import functools
from typing import Protocol

import torch


class Module(Protocol):
    """Kernels of one source under one set of macros."""

    def launch(
        self,
        kernel: str,
        grid: int,
        arguments: bytes,
        device: torch.device,
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Run a kernel on torch's current stream of a device, without waiting for it.

        Args:
            kernel: name in the source; its declaration holds the number of threads of a block.
            grid: number of blocks; none is no launch.
            arguments: the kernel's struct, as ``struct.pack`` writes it in native alignment
                (padding at its end may be left out). Pointers are ``tensor.data_ptr()``.
            device: where the tensors are.
            shared_bytes: dynamic shared memory of a block [bytes].

        Raises:
            LookupError: the source has no such kernel.
            ValueError: the arguments are not as long as the kernel's struct.
            RuntimeError: the driver refuses; the message holds its reason.
        """

    def threads(self, kernel: str) -> int:
        """Threads of a block, as the kernel's declaration says.

        Raises:
            LookupError: the source has no such kernel.
        """


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
    """Load a source for a CUDA device; see `module`."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return _loaded(source, index, tuple(defines.items()))


@functools.cache
def _loaded(source: str, device: int, defines: tuple[tuple[str, int], ...]) -> Module:
    """Module of a device; devices of one architecture share it."""
    from pcnn.kernels.compiler import architecture

    arch = architecture(torch.cuda.get_device_capability(device))
    return _compiled(source, arch, defines)


@functools.cache
def _compiled(source: str, arch: str, defines: tuple[tuple[str, int], ...]) -> Module:
    from pcnn.kernels.compiler import cubin
    from pcnn.kernels.launch import CudaModule

    return CudaModule(source, dict(defines), cubin(source, arch, dict(defines)))


#: Loader of each type of device. Tests add the CPU, through an emulator.
LOADERS: dict[str, Loader] = {"cuda": load}
