"""Calls of a launch to the driver: a fake one here, a real one in test_cuda_launch_gpu.py."""

import ctypes
import struct
import threading
from typing import Any

import pytest
import torch
from cuda.bindings import driver

from pcnn.kernels import launch
from pcnn.kernels.launch import CudaModule

SUCCESS = driver.CUresult.CUDA_SUCCESS
REFUSED = driver.CUresult.CUDA_ERROR_INVALID_VALUE
FILL = struct.Struct("Pqi")  # the values of FillArguments of csrc/probe.cu


class StrawDriver:
    """The driver calls that a launch makes, on two devices, written down as they come."""

    CUresult = driver.CUresult
    CUdevice = staticmethod(int)
    CUfunction_attribute = driver.CUfunction_attribute
    CUstreamCaptureMode = driver.CUstreamCaptureMode

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.here = threading.local()  # .context: 100 + device, none in a fresh thread
        self.answer = SUCCESS

    def cuInit(self, flags: int) -> Any:
        return (SUCCESS,)

    def cuLibraryLoadData(self, code: bytes, *options: Any) -> Any:
        assert len(options) == 6
        return SUCCESS, 1

    def cuLibraryGetKernel(self, library: int, name: bytes) -> Any:
        return SUCCESS, 2

    def cuKernelGetFunction(self, kernel: int) -> Any:
        self.calls.append(("load", self.here.context - 100))
        return SUCCESS, 3

    def cuKernelSetAttribute(self, attribute: Any, value: int, kernel: int, device: int) -> Any:
        self.calls.append(("shared", device, value))
        return (SUCCESS if value <= 232448 else REFUSED,)

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        return SUCCESS, self.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return SUCCESS, 100 + device

    def cuCtxGetCurrent(self) -> Any:
        return SUCCESS, getattr(self.here, "context", 0)

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.here.context = context
        return (SUCCESS,)

    def cuCtxGetDevice(self, out: Any) -> int:  # called through ctypes, as cuLaunchKernel is
        context = getattr(self.here, "context", 0)
        if not context:
            return int(driver.CUresult.CUDA_ERROR_INVALID_CONTEXT)
        out._obj.value = context - 100
        return 0

    def cuGetErrorString(self, error: Any) -> Any:
        return SUCCESS, b"the driver's words"

    def cuLaunchKernel(self, function: int, *arguments: Any) -> Any:
        *sizes, stream, pointers, _ = arguments
        address = ctypes.c_void_p.from_address(pointers).value
        content = FILL.unpack(ctypes.string_at(address, 24)[: FILL.size])
        self.calls.append(("launch", self.here.context - 100, tuple(sizes), stream, content))
        return int(self.answer)


@pytest.fixture
def straw(monkeypatch: pytest.MonkeyPatch) -> StrawDriver:
    """Two devices that this process does not have; torch's current one is the first."""
    straw = StrawDriver()
    monkeypatch.setattr(launch, "driver", straw)
    monkeypatch.setattr(launch, "_library", lambda: straw)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    # torch's CPU build has no streams
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda device: 7000 + device, raising=False
    )
    for one in (launch._primary_context, launch._loaded):
        monkeypatch.setattr(launch, one.__name__, one.__wrapped__)
    return straw


FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")
VALUES = {"out": 1 << 45, "n": 99, "value": -7}


def on(device: torch.device) -> CudaModule:
    return CudaModule("probe.cu", device, {}, b"\x7fELF")


def test_a_launch_carries_sizes_stream_and_arguments(straw) -> None:
    kernels = on(FIRST)
    for grid in (0, 5):
        kernels.launch("fill", grid, **VALUES)
    launched = ("launch", 0, (5, 1, 1, 256, 1, 1, 0), 7000, (1 << 45, 99, -7))
    assert straw.calls == [("load", 0), launched]
    kernels.launch("fill", 5, **VALUES)
    assert straw.calls[2:] == [launched]


def test_another_device_is_current_for_the_launch_only(straw) -> None:
    after: list[int] = []

    def work() -> None:
        for device in (SECOND, FIRST):
            on(device).launch("fill", 1, **VALUES)
            after.append(straw.here.context)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    # none again after the second device; the first is what torch would use there anyway
    assert after == [0, 100]
    expected = [("load", 1), ("launch", 1), ("load", 0), ("launch", 0)]
    assert [call[:2] for call in straw.calls] == expected
    assert straw.calls[1][3] == 7001


def test_shared_memory_is_asked_for_once_a_device(straw) -> None:
    kernels = on(FIRST)
    for shared_bytes in (0, 1000, 500, 100_000, 1000, 100_000):
        kernels.launch("fill", 1, shared_bytes=shared_bytes, **VALUES)
    on(SECOND).launch("fill", 1, shared_bytes=1000, **VALUES)
    asked = [call for call in straw.calls if call[0] == "shared"]
    assert asked == [("shared", 0, 1000), ("shared", 0, 100_000), ("shared", 1, 1000)]


def test_what_the_driver_refuses_is_told(straw) -> None:
    with pytest.raises(RuntimeError, match=r"fill: 300000 bytes .*the driver's words .*INVALID"):
        on(FIRST).launch("fill", 1, shared_bytes=300_000, **VALUES)
    straw.answer = REFUSED
    with pytest.raises(RuntimeError, match=r"probe.cu: fill did not start on cuda:0 \(grid 3, 256"):
        on(FIRST).launch("fill", 3, **VALUES)
