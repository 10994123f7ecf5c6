"""Calls measured in every way: wall, device and host time, memory, launches and waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.profiler import profile, record_function

from pcnn.runtime.timing import (
    CUDA_CALLS,
    DEVICE_WORK,
    SHORTEST,
    Call,
    Event,
    activities,
    ahead,
    between_events,
    by_clock,
    events_of,
    wait_for,
    waits,
)

Measured = TypeVar("Measured")
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
    timed = between_events if device.type == "cuda" else by_clock

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
        times, spin = ahead([call], spin, before)
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
