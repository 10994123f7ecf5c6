"""CUDA kernels by the name of their source, compiled when they are first asked for."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import torch

from pcnn.kernels.sources import threads_of
from pcnn.kernels.structs import Struct, arguments_of


class Module(ABC):
    """Kernels of one source under one set of macros, for one device."""

    def __init__(self, source: str, device: torch.device, defines: Mapping[str, int]) -> None:
        self.source, self.device, self.defines = source, device, defines
        self.index = -1 if device.index is None else device.index  # as `Tensor.get_device` says it
        self._structs: dict[str, Struct] = {}

    def launch(
        self,
        kernel: str,
        grid: int,
        arguments: bytes | None = None,
        device: torch.device | None = None,
        /,
        *,
        shared_bytes: int = 0,
        **fields: Any,
    ) -> None:
        """Run a kernel on torch's current stream of the device, without waiting for it.

        Args:
            kernel: name in the source; its declaration holds the number of threads of a block.
            grid: number of blocks; none is no launch.
            arguments: the whole struct as bytes, in place of fields.
            device: not read.
            shared_bytes: dynamic shared memory of a block [bytes].
            fields: values of the kernel's struct by name; see `pcnn.kernels.structs.Struct`.

        Raises:
            LookupError: the source has no such kernel.
            ValueError: a field is missing, unknown, of another dtype or on another device.
            RuntimeError: the driver refuses; the message holds its reason.
        """
        if grid:
            struct = self._structs.get(kernel) or self.struct(kernel)
            if arguments is None:
                arguments = struct.pack(fields, self.index)
            elif len(arguments) != struct.size:
                arguments = struct.filled(arguments)
            self.start(kernel, grid, arguments, shared_bytes)

    @abstractmethod
    def start(self, kernel: str, grid: int, arguments: bytes, shared_bytes: int) -> None:
        """Run a kernel with the bytes of its struct."""

    def threads(self, kernel: str) -> int:
        """Threads of a block, as the kernel's declaration says."""
        return threads_of(self.source, kernel, self.defines)

    def struct(self, kernel: str) -> Struct:
        """Struct of a kernel's arguments."""
        found = arguments_of(self.source, kernel, self.defines)
        return self._structs.setdefault(kernel, found)


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
def _loaded(source: str, index: int, defines: tuple[tuple[str, int], ...]) -> Module:
    from pcnn.kernels.compiler import architecture, cubin
    from pcnn.kernels.launch import CudaModule

    arch = architecture(torch.cuda.get_device_capability(index))
    code = cubin(source, arch, dict(defines))
    return CudaModule(source, torch.device("cuda", index), dict(defines), code)


#: Loader of each type of device. Tests add the CPU, through an emulator.
LOADERS: dict[str, Loader] = {"cuda": load}
