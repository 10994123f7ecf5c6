"""Time of a call (wall, device, host), its memory, its launches and its waits.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile, record_function

#: What is timed. Its result is kept until the clock has stopped.
Call = Callable[[], object]
#: An event of a trace in Chrome's format: ``cat``, ``name``, ``ts`` and ``dur`` [us], ``args``.
Event = Mapping[str, Any]
Measured = TypeVar("Measured")

#: First and longest spin, in cycles of the device (about 1 and 64 ms).
SHORTEST, LONGEST = 2_000_000, 128_000_000
#: Chances that a call gets behind the longest spin: the host may have been interrupted.
CHANCES = 3

#: Categories of a trace: work of the device, and calls into CUDA.
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CUDA_CALLS = ("cuda_runtime", "cuda_driver")
#: Names the measured call in a trace.
MARK = "pcnn call"


@dataclass(frozen=True)
class Repeats:
    """How often a call is timed."""

    count: int = 20  # calls that count
    warmup: int = 3  # calls before the first that counts, for every kind of time
    budget_s: float = 10.0  # no call begins after this many seconds [s]

    def run(self, once: Callable[[], Measured]) -> list[Measured]:
        """What ``once`` returns for the calls that count."""
        started = time.perf_counter()
        for _ in range(self.warmup):
            once()
            if time.perf_counter() - started > self.budget_s:
                break
        found: list[Measured] = []
        started = time.perf_counter()
        while len(found) < self.count:
            if len(found) >= 3 and time.perf_counter() - started > self.budget_s:
                break
            found.append(once())
        return found


def measure(
    call: Call,
    device: torch.device,
    often: Repeats | None = None,
    *,
    before: Call | None = None,
    traced: bool = True,
) -> dict[str, float | int]:
    """Measure a call in every way that its device knows."""
    often, before = often or Repeats(), before or (lambda: None)
    wall = sorted(wall_times(call, device, often, before))
    found: dict[str, float | int] = {"wall_ms": statistics.median(wall), "min_ms": wall[0]}
    found["p90_ms"] = wall[-(-len(wall) * 90 // 100) - 1]  # nearest rank
    if device.type != "cuda":
        return found
    if behind := device_times(call, device, often, before):
        on_device, on_host = zip(*behind, strict=True)
        found |= {"device_ms": statistics.median(on_device), "host_ms": statistics.median(on_host)}
    before()
    found["memory_mb"] = peak_memory_mb(call, device)
    if traced:
        before()
        seen = trace(call, device)
        if seen.timeline:  # empty where CUPTI is not served
            found |= {"busy_ms": seen.busy_ms, "launches": seen.launches, "waits": seen.waits}
    return found


def wall_times(
    call: Call, device: torch.device, often: Repeats, before: Call | None = None
) -> list[float]:
    """Times of a call from start to end on an idle device [ms]: between events, or the clock's."""
    timed = _between_events if device.type == "cuda" else _by_clock

    def once() -> float:
        if before:
            before()
        return timed(call, device)

    return often.run(once)


def device_times(
    call: Call, device: torch.device, often: Repeats, before: Call | None = None
) -> list[tuple[float, float]] | None:
    """Times of a call on a GPU and on its host [ms], each behind a spin of its own."""
    spin = SHORTEST

    def once() -> tuple[float, float]:
        nonlocal spin
        times, spin = _ahead([call], spin, before)
        if times is None:
            raise _NeverAheadError
        return times[0]

    with torch.cuda.device(device):
        try:
            return often.run(once)
        except _NeverAheadError:
            return None


class _NeverAheadError(Exception):
    """The host stays behind the longest spin."""


def device_ms(call: Call, device: torch.device, *, warmup: int = 2, repeats: int = 9) -> float:
    """Median time of a call whose operands are in the cache as far as they fit [ms]."""
    for _ in range(warmup):
        call()
    if device.type != "cuda":
        return statistics.median(_by_clock(call, device) for _ in range(repeats))
    with torch.cuda.device(device):
        times, _ = _ahead([call] * repeats)  # all behind one spin
        times = times or device_times(call, device, Repeats(repeats, warmup=0))
    if times:
        return statistics.median(ms for ms, _ in times)
    return statistics.median(_between_events(call, device) for _ in range(repeats))


def flowing_ms(call: Call, device: torch.device, *, warmup: int = 2, repeats: int = 9) -> float:
    """Time of a call among others like it [ms], the median of three rounds without waits."""
    for _ in range(warmup):
        call()

    def round_of_calls() -> None:
        for _ in range(repeats):
            call()

    return statistics.median(_by_clock(round_of_calls, device) for _ in range(3)) / repeats


def _ahead(
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


def _by_clock(call: Call, device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    kept = call()
    wait_for(device)
    took = 1e3 * (time.perf_counter() - start)
    del kept  # freed after the clock has stopped
    return took


def _between_events(call: Call, device: torch.device) -> float:
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


def peak_memory_mb(call: Call, device: torch.device) -> float:
    """Peak of torch's allocator in a call, above what was allocated before [MiB]; CUDA only."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    kept = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del kept
    return (peak - before) / 2**20


@dataclass(frozen=True)
class Trace:
    """What a call did."""

    timeline: tuple[tuple[str, float], ...]  # name and time [us] of every kernel, copy and fill
    waits: int = 0  # of the host for the device

    @property
    def launches(self) -> int:
        """Kernels, copies and fills."""
        return len(self.timeline)

    @property
    def busy_ms(self) -> float:
        """Sum of their times [ms]; more than the call took where streams overlap."""
        return sum(took for _, took in self.timeline) / 1e3


def trace(call: Call, device: torch.device) -> Trace:
    """Run a call once under the profiler. Kernels of all libraries count."""
    wait_for(device)
    with profile(activities=activities(device)) as profiler:
        with record_function(MARK):
            kept = call()
        wait_for(device)  # outside the mark: not a wait of the call
    del kept
    if device.type == "cuda":
        return read_trace(events_of(profiler))
    ran = sorted(profiler.events(), key=lambda event: event.time_range.start)
    times = [(event.name, float(event.self_cpu_time_total)) for event in ran]
    return Trace(tuple(entry for entry in times if entry[0] != MARK))


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


def read_trace(events: Iterable[Event]) -> Trace:
    """Sum up the events of a trace that holds one marked call."""
    work, waited, marks = [], [], []
    for event in events:
        if event.get("ph") != "X":
            continue
        category, name, begin = event.get("cat"), str(event["name"]), float(event["ts"])
        if category in DEVICE_WORK:
            work.append((begin, (name, float(event["dur"]))))
        elif category in CUDA_CALLS and waits(name):
            waited.append(begin)
        elif category == "user_annotation" and name == MARK:
            marks.append((begin, begin + float(event["dur"])))
    inside = sum(any(begin <= at < end for begin, end in marks) for at in waited)
    return Trace(tuple(entry for _, entry in sorted(work)), inside)


def waits(name: str) -> bool:
    copies = name.startswith(("cudaMemcpy", "cuMemcpy")) and "Async" not in name
    return copies or "Synchronize" in name
