"""Launching compiled kernels through the CUDA driver, at a few microseconds of host time."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from cuda.bindings import driver

from pcnn.kernels.sources import threads_of


class CudaModule:
    """Kernels of one source, loaded into the driver for all devices of one architecture.

    The driver's libraries belong to no context, so one module serves many devices and threads.
    """

    def __init__(self, source: str, defines: Mapping[str, int], cubin: bytes) -> None:
        self.source = source
        self.defines = dict(defines)
        _check(driver.cuInit(0), source)
        with _while_capturing():
            self._library = _check(
                driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0), f"loading {source}"
            )
        self._kernels: dict[str, _Kernel] = {}

    def threads(self, kernel: str) -> int:
        """Threads of a block; see `pcnn.kernels.cuda.Module`."""
        return self._kernel(kernel).threads

    def launch(
        self,
        kernel: str,
        grid: int,
        arguments: bytes,
        device: torch.device,
        *,
        shared_bytes: int = 0,
    ) -> None:
        """Run a kernel on torch's current stream; see `pcnn.kernels.cuda.Module`."""
        if grid == 0:
            return
        found = self._kernels.get(kernel) or self._kernel(kernel)
        index: int = torch.cuda.current_device() if device.index is None else device.index
        if shared_bytes > found.shared.get(index, -1):
            found.prepare(index, shared_bytes)
        if len(arguments) != found.bytes:
            arguments = found.padded(arguments)
        # the driver wants an array of pointers to arguments. A c_char_p holds the address of the
        # bytes: it is that array, of length one, and keeps the bytes alive.
        pointer = ctypes.c_char_p(arguments)
        launch = (
            *(found.address, grid, 1, 1, found.threads, 1, 1, shared_bytes),
            *(torch._C._cuda_getCurrentRawStream(index), ctypes.addressof(pointer), None),
        )
        # through ctypes, at half the time that the bindings take to wrap results
        library, current = _library(), ctypes.c_int(-1)
        if library.cuCtxGetDevice(ctypes.byref(current)) or current.value != index:
            with _current(index):
                number = library.cuLaunchKernel(*launch)
        else:
            number = library.cuLaunchKernel(*launch)
        if number:
            error = driver.CUresult(number)
            raise RuntimeError(
                f"{self.source}: {kernel} did not start on {device} (grid {grid}, {found.threads} "
                f"threads, {shared_bytes} bytes of shared memory): {_reason(error)}; a failure of "
                "earlier work on the device shows here too"
            )

    def _kernel(self, name: str) -> _Kernel:
        found = self._kernels.get(name)
        if found is None:
            threads = threads_of(self.source, name, self.defines)
            handle = _check(
                driver.cuLibraryGetKernel(self._library, name.encode()), f"{self.source}: {name}"
            )
            # two threads may both come here: they store equal objects
            found = self._kernels.setdefault(
                name, _Kernel(f"{self.source}: {name}", handle, threads)
            )
        return found


class _Kernel:
    """A kernel of a loaded library, on every device."""

    def __init__(self, name: str, handle: Any, threads: int) -> None:
        self.name = name
        self.handle = handle
        self.address = int(handle)  # which the driver's launch takes for a function
        self.threads = threads
        self.bytes = -1  # of its struct; the driver answers only in a context
        # dynamic shared memory allowed so far [bytes], on each device that the kernel is ready for
        self.shared: dict[int, int] = {}
        self._lock = threading.Lock()

    def padded(self, arguments: bytes) -> bytes:
        """Arguments with the padding that C adds at the end of a struct."""
        missing: int = self.bytes - len(arguments)
        if not 0 < missing < 8:
            raise ValueError(
                f"{self.name}: {len(arguments)} bytes of arguments were packed, its struct has "
                f"{self.bytes}: pack one value for each member, in order and of its type"
            )
        return arguments + bytes(missing)

    def prepare(self, device: int, shared_bytes: int) -> None:
        """Load the kernel on a device, and raise its limit of dynamic shared memory there."""
        with self._lock, _current(device), _while_capturing():
            # to load now rather than at the launch, which may be captured
            _check(driver.cuKernelGetFunction(self.handle), self.name)
            _, self.bytes = _check(driver.cuKernelGetParamInfo(self.handle, 0), self.name)
            if shared_bytes > self.shared.get(device, 0):
                answer = driver.cuKernelSetAttribute(
                    driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes,
                    self.handle,
                    driver.CUdevice(device),
                )
                _check(answer, f"{self.name}: {shared_bytes} bytes of shared memory on a block")
            self.shared[device] = max(shared_bytes, self.shared.get(device, 0))


@functools.cache
def _library() -> Any:
    """The driver itself, for the two calls of every launch."""
    library = ctypes.CDLL("libcuda.so.1")
    sizes = [ctypes.c_uint] * 7
    library.cuLaunchKernel.argtypes = [ctypes.c_void_p, *sizes, *[ctypes.c_void_p] * 3]
    library.cuCtxGetDevice.argtypes = [ctypes.POINTER(ctypes.c_int)]
    return library


@contextmanager
def _current(device: int) -> Iterator[None]:
    """Make a device current in the driver, in a thread that uses another or has used none."""
    context = _primary_context(device)
    before = _check(driver.cuCtxGetCurrent(), "current context")
    # a fresh thread keeps the device that torch counts as its current one
    keep = not int(before) and torch.cuda.current_device() == device
    _check(driver.cuCtxSetCurrent(context), f"cuda:{device}")
    try:
        yield
    finally:
        if not keep:
            _check(driver.cuCtxSetCurrent(before), "previous context")


@contextmanager
def _while_capturing() -> Iterator[None]:
    """Let this thread load code while it captures a graph, which the driver's default forbids."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = _check(driver.cuThreadExchangeStreamCaptureMode(mode), "capture mode")
    try:
        yield
    finally:
        _check(driver.cuThreadExchangeStreamCaptureMode(before), "capture mode")


@functools.cache
def _primary_context(device: int) -> Any:
    """The context of a device that torch uses; held until the process ends, as torch holds it."""
    return _check(driver.cuDevicePrimaryCtxRetain(driver.CUdevice(device)), f"cuda:{device}")


def _check(answer: tuple[Any, ...], what: str) -> Any:
    """Value of a driver call: nothing, one, or a tuple of several; RuntimeError where it failed."""
    error, *values = answer
    if error:
        raise RuntimeError(f"{what}: {_reason(error)}")
    return values[0] if len(values) == 1 else tuple(values)


def _reason(error: Any) -> str:
    """The driver's words for an error."""
    _, text = driver.cuGetErrorString(error)
    return f"{text.decode() if text else 'unknown error'} ({error.name})"
