"""Measuring a call: wall time, GPU time, peak memory, launches and host syncs.

*Wall* time is from start to end on an idle device: launch gaps, host syncs and Python count. *GPU*
time is that of the same region enqueued behind a spin kernel (`pcnn.bench.spin`): no launch gaps;
a call that waits for the device has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pcnn.bench.calls import Call, Calls
from pcnn.bench.cold_cache import CacheFlush
from pcnn.bench.spin import gpu_time
from pcnn.bench.timing import Timing
from pcnn.bench.trace import count_sync_warnings, trace

#: Decimals of milliseconds and megabytes in result rows: a tenth of a microsecond is noise.
DIGITS = 4


@dataclass(frozen=True)
class Measurement:
    """All that was measured of one call; ``None`` is what the device does not tell.

    Args:
        wall: from start to end on an idle device.
        gpu: behind a spin kernel; ``None`` on a CPU and for a call that waits for the device.
        host: until the call returns to the host; absent where ``gpu`` is.
        cache: ``warm`` (repeats follow each other) or ``cold`` (flushed before every repeat).
        memory_mb: peak of the allocator above what was allocated before the call [MiB].
        launches: kernels, copies and fills that the device ran in one call.
        busy_ms: sum of their durations [ms].
        syncs: times the host waited for the device in one call.
    """

    wall: Timing
    gpu: Timing | None = None
    host: Timing | None = None
    cache: str = "warm"
    memory_mb: float | None = None
    launches: int | None = None
    busy_ms: float | None = None
    syncs: int | None = None

    def columns(self) -> dict[str, Any]:
        """Fields of a result row; fastest and p90 are of the wall time, as in the peers' rows."""
        return {
            "gpu_ms": None if self.gpu is None else round(self.gpu.median, DIGITS),
            "wall_ms": round(self.wall.median, DIGITS),
            "host_ms": None if self.host is None else round(self.host.median, DIGITS),
            "min_ms": round(self.wall.fastest, DIGITS),
            "p90_ms": round(self.wall.p90, DIGITS),
            "gpu_busy_ms": None if self.busy_ms is None else round(self.busy_ms, DIGITS),
            "memory_mb": None if self.memory_mb is None else round(self.memory_mb, DIGITS),
            "launches": self.launches,
            "syncs": self.syncs,
            "cache": self.cache,
        }


def measure(
    calls: Calls,
    device: torch.device,
    *,
    warmup: int = 3,
    repeats: int = 20,
    budget_s: float = 10.0,
    cold: bool = False,
    count: bool = True,
) -> Measurement:
    """Measure a call in every way its device knows.

    Args:
        calls: the call of every repeat (`pcnn.bench.calls`).
        device: where it runs.
        warmup: calls before the first that counts, for every kind of time.
        repeats: calls that count.
        budget_s: stop repeating after this many seconds [s] for every kind of time; at least three
            repeats always count.
        cold: flush the last-level cache before every repeat.
        count: count launches and syncs under the profiler too, which takes a tenth of a second.
    """
    flush = CacheFlush(device) if cold else None
    wall = wall_time(calls, device, warmup=warmup, repeats=repeats, budget_s=budget_s, flush=flush)
    cache = "cold" if cold else "warm"
    if device.type != "cuda":
        return Measurement(wall, cache=cache)
    behind = gpu_time(calls, device, warmup=warmup, repeats=repeats, budget_s=budget_s, flush=flush)
    gpu, host = behind or (None, None)
    syncs = count_sync_warnings(calls(0), device)
    memory_mb = peak_memory_mb(calls(0), device)
    launches = busy_ms = None
    seen = trace(calls(0), device) if count else None
    if seen is not None and seen.timeline:  # empty where CUPTI is not served
        launches, busy_ms, syncs = seen.launches, seen.busy_ms, max(syncs, seen.syncs)
    return Measurement(wall, gpu, host, cache, memory_mb, launches, busy_ms, syncs)


def wall_time(
    calls: Calls,
    device: torch.device,
    *,
    warmup: int = 3,
    repeats: int = 20,
    budget_s: float = 10.0,
    flush: Callable[[], None] | None = None,
) -> Timing:
    """Time calls from start to end on an idle device: launches and host syncs included.

    On a GPU the time is between two CUDA events on the current stream, with the device idle before
    each repeat; on a CPU it is the clock's. Arguments are those of `pcnn.bench.spin.gpu_time`.
    """
    once = _by_events if device.type == "cuda" else _by_clock
    milliseconds: list[float] = []
    started = time.perf_counter()
    for index in range(warmup):
        once(calls(index), device, flush)
        if time.perf_counter() - started > budget_s:
            break
    started = time.perf_counter()
    for index in range(warmup, warmup + repeats):
        if len(milliseconds) >= 3 and time.perf_counter() - started > budget_s:
            break
        milliseconds.append(once(calls(index), device, flush))
    return Timing.of(milliseconds)


def _by_clock(call: Call, device: torch.device, flush: Callable[[], None] | None) -> float:
    if flush:
        flush()
    start = time.perf_counter()
    kept = call()
    took = 1e3 * (time.perf_counter() - start)
    del kept  # freed after the clock has stopped
    return took


def _by_events(call: Call, device: torch.device, flush: Callable[[], None] | None) -> float:
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if flush:
            flush()
        torch.cuda.synchronize()
        start.record()
        kept = call()
        end.record()
        torch.cuda.synchronize()
        del kept
        return float(start.elapsed_time(end))


def peak_memory_mb(call: Call, device: torch.device) -> float:
    """Peak of torch's allocator in a call, above what was allocated before [MiB]; CUDA only.

    The result is part of it; memory that is not torch's is not.
    """
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    kept = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    del kept
    return (peak - before) / 2**20
