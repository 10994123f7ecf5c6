"""Trace of a call: every kernel on its device by name, and every wait of the host.

Read off one run under torch's profiler. On a GPU its records come from CUPTI, so kernels of all
libraries count: torch, Triton, or the driver interface. On a CPU torch's own operators take
the kernels' place.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, record_function

from pcnn.bench.turns import measuring

#: No arguments; its result is kept until the clock has stopped.
Call = Callable[[], object]

#: Categories of device work in a trace.
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
#: Categories of calls into CUDA.
CUDA_CALLS = ("cuda_runtime", "cuda_driver")
#: Calls in which the host waits. The copies without Async in their name do, too.
WAITS = (
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
)
#: Names the measured call in a trace.
MARK = "pcnn.bench call"


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a call.

    Args:
        name: of the kernel, copy, fill or (on a CPU) operator.
        microseconds: on the device, all its launches together [us].
        count: launches.
    """

    name: str
    microseconds: float
    count: int


@dataclass(frozen=True)
class Trace:
    """The trace of one call.

    Args:
        timeline: every launch, in the order in which the device began them.
        syncs: times the host waited for the device.
    """

    timeline: tuple[KernelTime, ...]
    syncs: int = 0

    @property
    def launches(self) -> int:
        """Kernels, copies and fills that the device ran."""
        return sum(kernel.count for kernel in self.timeline)

    @property
    def busy_ms(self) -> float:
        """Sum of their durations [ms]; more than the call took where streams overlap."""
        return sum(kernel.microseconds for kernel in self.timeline) / 1e3


@measuring()
def trace(call: Call, device: torch.device) -> Trace:
    """Run a call once under the profiler."""
    if device.type != "cuda":
        return _cpu_trace(call)
    # CUDA graphs captured before crash where CUPTI is taken down behind a trace and started again
    os.environ.update(TEARDOWN_CUPTI="0", DISABLE_CUPTI_LAZY_REINIT="1")
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profiler:
            with record_function(MARK):
                kept = call()
            torch.cuda.synchronize()  # outside the mark: not a wait of the call
        del kept
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(errors="replace"))["traceEvents"]
    return read_trace(events)


def read_trace(events: Iterable[Mapping[str, Any]]) -> Trace:
    """Sum up the events of a Chrome trace that holds one marked call.

    Args:
        events: ``traceEvents`` of the profiler's file: ``cat``, ``name``, ``ts`` and ``dur`` [us].
    """
    timed = [event for event in events if event.get("ph") == "X"]
    marks = [e for e in timed if e.get("cat") == "user_annotation" and e["name"] == MARK]
    launches: list[tuple[float, KernelTime]] = []
    syncs = 0
    for event in timed:
        category, name, at = event.get("cat"), str(event["name"]), float(event["ts"])
        if category in DEVICE_WORK:
            launches.append((at, KernelTime(name, float(event["dur"]), 1)))
        elif category in CUDA_CALLS and waits(name):
            syncs += any(float(m["ts"]) <= at < float(m["ts"]) + float(m["dur"]) for m in marks)
    return Trace(_in_order(launches), syncs)


def waits(name: str) -> bool:
    """Whether a call into CUDA makes the host wait."""
    copies = name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name
    # versioned names, as cudaStreamSynchronize_ptsz, are the same calls
    return copies or name.startswith(WAITS)


def _cpu_trace(call: Call) -> Trace:
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        kept = call()
    del kept
    return Trace(
        _in_order(
            (
                float(event.time_range.start),
                KernelTime(event.name, float(event.self_cpu_time_total), 1),
            )
            for event in profiler.events()
        )
    )


def _in_order(launches: Iterable[tuple[float, KernelTime]]) -> tuple[KernelTime, ...]:
    return tuple(kernel for _, kernel in sorted(launches, key=lambda entry: entry[0]))


def count_sync_warnings(call: Call, device: torch.device) -> int:
    """Waits of the host that torch itself reports; those of other libraries stay unseen."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught, torch.cuda.device(device):
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            kept = call()
        finally:
            torch.cuda.set_sync_debug_mode(before)
        torch.cuda.synchronize()
        del kept
    return sum("synchronizing CUDA operation" in str(entry.message) for entry in caught)
