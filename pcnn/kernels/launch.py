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

from pcnn.kernels.compiler import threads_of
from pcnn.kernels.structs import Module


class CudaModule(Module):
    """Kernels of one source, loaded into the driver; threads share it."""

    def __init__(
        self, source: str, device: torch.device, defines: Mapping[str, int], cubin: bytes
    ) -> None:
        super().__init__(source, device, defines)
        _check(driver.cuInit(0), source)
        self._code = _loaded(cubin)
        self._driver = _library()
        self._kernels: dict[str, _Kernel] = {}

    def start(self, kernel: str, grid: int, arguments: bytes, shared_bytes: int) -> None:
        """Run a kernel on torch's current stream."""
        found = self._kernels.get(kernel) or self._kernel(kernel)
        if shared_bytes > found.shared:
            found.prepare(self.index, shared_bytes)
        # the driver wants an array of pointers to arguments. A c_char_p holds the address of the
        # bytes: it is that array, of length one, and keeps the bytes alive.
        pointer = ctypes.byref(ctypes.c_char_p(arguments))
        stream = ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(self.index))
        grids = found.address, grid, 1, 1, found.threads, 1, 1
        launch = *grids, shared_bytes, stream, pointer, None
        # through ctypes, at half the time that the bindings take to wrap results
        library, current = self._driver, ctypes.c_int(-1)
        if library.cuCtxGetDevice(ctypes.byref(current)) or current.value != self.index:
            with _current(self.index):
                number = library.cuLaunchKernel(*launch)
        else:
            number = library.cuLaunchKernel(*launch)
        if number:
            raise RuntimeError(
                f"{self.source}: {kernel} did not start on {self.device} (grid {grid}, "
                f"{found.threads} threads, {shared_bytes} bytes of shared memory): "
                f"{_reason(driver.CUresult(number))}; a failure of earlier work on the device "
                "shows here too"
            )

    def _kernel(self, name: str) -> _Kernel:
        what = f"{self.source}: {name}"
        threads = threads_of(self.source, name, self.defines)
        handle = _check(driver.cuLibraryGetKernel(self._code, name.encode()), what)
        # two threads may both come here: they store equal objects
        return self._kernels.setdefault(name, _Kernel(what, handle, threads))


class _Kernel:
    """A kernel of a loaded library."""

    def __init__(self, name: str, handle: Any, threads: int) -> None:
        self.name, self.handle, self.threads = name, handle, threads
        # which the driver's launch takes for a function
        self.address = ctypes.c_void_p(int(handle))
        self.shared = -1  # dynamic shared memory allowed so far [bytes]; -1: it is not ready
        self._lock = threading.Lock()

    def prepare(self, device: int, shared_bytes: int) -> None:
        """Load the kernel on a device, and raise its limit of dynamic shared memory there."""
        with self._lock, _current(device), _while_capturing():
            # to load now rather than at the launch, which may be captured
            _check(driver.cuKernelGetFunction(self.handle), self.name)
            if shared_bytes > max(self.shared, 0):
                attribute = driver.CUfunction_attribute
                answer = driver.cuKernelSetAttribute(
                    attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                    shared_bytes,
                    self.handle,
                    driver.CUdevice(device),
                )
                _check(answer, f"{self.name}: {shared_bytes} bytes of shared memory on a block")
            self.shared = max(shared_bytes, self.shared)


@functools.cache
def _loaded(cubin: bytes) -> Any:
    """Code in the driver: libraries belong to no context, so devices of one kind share it."""
    with _while_capturing():
        return _check(driver.cuLibraryLoadData(cubin, [], [], 0, [], [], 0), "loading kernels")


@functools.cache
def _library() -> Any:
    """The driver itself, for the two calls of every launch."""
    # without declared types: numbers go as C's int, in half the time; pointers have theirs
    return ctypes.CDLL("libcuda.so.1")


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


def new_stream(device: int) -> int:
    """A stream of a device, for as long as the process lives."""
    with _current(device), _while_capturing():
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(_check(driver.cuStreamCreate(flags), f"a stream of cuda:{device}"))


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
