"""Time of a call, and events of traces.

*Wall* time is from start to end on an idle device: launch gaps, waits and Python count. *Device*
time is that of calls that were enqueued behind a kernel that only spins, so that the device finds
them waiting:

    host:    spin | event call event | event call event | ...
    device:  spinning........................... | call | call | ...

That holds only if the spin was still running when the last call was enqueued. This is checked; a
spin that was too short is doubled. A call that waits for the device is never ahead of it and has no
such time.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

#: What is timed. Its result is kept until the clock has stopped.
Call = Callable[[], object]
#: An event of a trace in Chrome's format: ``cat``, ``name``, ``ts`` and ``dur`` [us], ``args``.
Event = Mapping[str, Any]

#: First and longest spin, in cycles of the device (about 1 and 64 ms).
SHORTEST, LONGEST = 2_000_000, 128_000_000
#: Chances that a call gets behind the longest spin: the host may have been interrupted.
CHANCES = 3

#: Categories of a trace: work of the device, and calls into CUDA.
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CUDA_CALLS = ("cuda_runtime", "cuda_driver")


def device_ms(
    call: Call, device: torch.device, *, warmup: int = 2, repeats: int = 9, waits: bool = False
) -> float:
    """Median time of a call whose operands are in the cache as far as they fit [ms].

    That of a call that waits for the device is from start to end.
    """
    for _ in range(warmup):
        call()
    if device.type != "cuda":
        return statistics.median(by_clock(call, device) for _ in range(repeats))
    times: Any = None
    if not waits:
        with torch.cuda.device(device):
            times, _ = ahead([call] * repeats)  # all behind one spin
            if times is None:
                singles = [ahead([call])[0] or [] for _ in range(repeats)]
                times = [one for single in singles for one in single]
    if times is not None and len(times) == repeats:
        return statistics.median(ms for ms, _ in times)
    return statistics.median(between_events(call, device) for _ in range(repeats))


def ahead(
    calls: Sequence[Call], spin: int = SHORTEST, before: Call | None = None
) -> tuple[list[tuple[float, float]] | None, int]:
    """Times behind a spin as long as it takes, and that spin; none if the longest is too short."""
    chances = CHANCES
    while chances:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in calls]
        host = []
        torch.cuda.synchronize()
        if before:
            before()
        torch.cuda._sleep(spin)
        for call, (start, end) in zip(calls, events, strict=True):
            start.record()
            began = time.perf_counter()
            kept = call()  # freed after the end event: a deallocation may take host time
            host.append(1e3 * (time.perf_counter() - began))
            end.record()
            del kept
        ahead = not events[0][0].query()
        torch.cuda.synchronize()
        if ahead:
            device = (float(start.elapsed_time(end)) for start, end in events)
            return list(zip(device, host, strict=True)), spin
        chances -= spin >= LONGEST
        spin = min(2 * spin, LONGEST)
    return None, spin


def by_clock(call: Call, device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    kept = call()
    wait_for(device)
    took = 1e3 * (time.perf_counter() - start)
    del kept  # freed after the clock has stopped
    return took


def between_events(call: Call, device: torch.device) -> float:
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        kept = call()
        end.record()
        torch.cuda.synchronize()
        del kept
        return float(start.elapsed_time(end))


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def activities(device: torch.device) -> list[ProfilerActivity]:
    if device.type != "cuda":
        return [ProfilerActivity.CPU]
    # CUDA graphs captured before crash where CUPTI is taken down behind a trace and started again
    os.environ.update(TEARDOWN_CUPTI="0", DISABLE_CUPTI_LAZY_REINIT="1")
    return [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def events_of(profiler: profile, path: Path | None = None) -> list[Event]:
    """The events of a profiler; ``path`` keeps its file (``.json``), which Perfetto opens."""
    with tempfile.TemporaryDirectory() as folder:
        path = path or Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        found: list[Event] = json.loads(path.read_text(errors="replace"))["traceEvents"]
    return found


def waits(name: str) -> bool:
    copies = name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name
    return copies or "Synchronize" in name
