"""Measuring a call: wall time, GPU time, peak memory, launches and host syncs.

*Wall* time is from start to end on an idle device: launch gaps, host syncs and Python count. *GPU*
time is that of the same region enqueued behind a kernel that only spins
(`pcnn.runtime.device_time.behind_spin`): no launch gaps. That holds only if the host has enqueued
everything before the spin ends, which every repeat checks; a spin that was too short is doubled. A
call that waits for the device can never be ahead. It is recognised by staying behind the longest
spin, and has no such time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pcnn.bench.trace import Call as Call
from pcnn.bench.trace import count_sync_warnings, trace
from pcnn.runtime.device_time import behind_spin

#: The call of a repeat, from the number of the repeat. What it prepares is not measured.
Calls = Callable[[int], Call]

#: First and longest spin [ms]; a host that is behind the longest is taken to wait for the device.
SHORTEST_MS, LONGEST_MS = 1.0, 32.0
#: Chances that a call gets behind the longest spin: the host may have been interrupted.
CHANCES = 3
#: Bytes written at least to empty a cache; a few times the L2 of an H100 or H200 (50 and 60 MB).
FLUSH_BYTES = 256 << 20
#: Decimals of milliseconds and megabytes in result rows: a tenth of a microsecond is noise.
DIGITS = 4


def same(run: Call) -> Calls:
    """Return one call for all repeats."""
    return lambda _: run


@dataclass(frozen=True)
class Timing:
    """Milliseconds of the repeats, summarised.

    Args:
        median: the middle one.
        fastest: the smallest.
        p90: nine in ten repeats took at most this.
        repeats: how many there were.
    """

    median: float
    fastest: float
    p90: float
    repeats: int

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """Summarise repeats.

        Raises:
            ValueError: no repeat at all.
        """
        if not milliseconds:
            raise ValueError("no repeats to summarise")
        ordered = sorted(milliseconds)
        # nearest rank: the smallest repeat that at least 90 % do not exceed
        rank = -(-len(ordered) * 9 // 10) - 1
        return cls(statistics.median(ordered), ordered[0], ordered[rank], len(ordered))


class CacheFlush:
    """Writes a buffer larger than the last-level cache, so that its content is evicted.

    Args:
        device: whose cache.
        size: bytes of the buffer; ``None``: 256 MiB, and at least four times a GPU's L2.
    """

    def __init__(self, device: torch.device, size: int | None = None) -> None:
        if size is None:
            size = FLUSH_BYTES
            if device.type == "cuda":
                size = max(size, 4 * torch.cuda.get_device_properties(device).L2_cache_size)
        self._buffer = torch.zeros(size // 4, dtype=torch.int32, device=device)

    def __call__(self) -> None:
        """Enqueue the write on the current stream; nothing waits."""
        self._buffer.add_(1)  # reads and writes, so that the lines are allocated either way


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
        calls: the call of every repeat (`Calls`).
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
    each repeat; on a CPU it is the clock's. Arguments are those of `gpu_time`.
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


@dataclass(frozen=True)
class BehindSpin:
    """Times of one repeat.

    Args:
        gpu_ms: on the device, without launch gaps.
        host_ms: until the call returned to the host, which waited for nothing.
        ahead: whether the host had enqueued everything before the spin ended.
    """

    gpu_ms: float
    host_ms: float
    ahead: bool


def gpu_time(
    calls: Calls,
    device: torch.device,
    *,
    warmup: int = 3,
    repeats: int = 20,
    budget_s: float = 10.0,
    flush: Callable[[], None] | None = None,
) -> tuple[Timing, Timing] | None:
    """Time calls between two events behind a spin kernel.

    Args:
        calls: the call of every repeat.
        device: a CUDA device.
        warmup: repeats that do not count.
        repeats: repeats that count.
        budget_s: stop repeating after this many seconds [s]; at least three repeats always count.
        flush: enqueued before every spin (`CacheFlush`).

    Returns:
        Times on the device, and of the host; ``None`` if the host cannot run ahead: the call
        synchronises, or it enqueues more than the device's queue of launches holds (about a
        thousand).
    """
    with torch.cuda.device(device):
        cycles = cycles_per_ms()

        def once(index: int, spin_ms: float) -> BehindSpin:
            ((gpu_ms, host_ms),), ahead = behind_spin([calls(index)], int(spin_ms * cycles), flush)
            return BehindSpin(gpu_ms, host_ms, ahead)

        found = while_ahead(once, warmup=warmup, repeats=repeats, budget_s=budget_s)
    if not found:
        return None
    return Timing.of([one.gpu_ms for one in found]), Timing.of([one.host_ms for one in found])


def while_ahead(
    once: Callable[[int, float], BehindSpin],
    *,
    warmup: int,
    repeats: int,
    budget_s: float,
    shortest_ms: float = SHORTEST_MS,
    longest_ms: float = LONGEST_MS,
) -> list[BehindSpin]:
    """Repeat a measurement, with spins as long as it takes for the host to be ahead.

    Args:
        once: measures, from the number of the repeat and a spin [ms].
        warmup: times that do not count.
        repeats: times that count.
        budget_s: as in `gpu_time`.
        shortest_ms: first spin.
        longest_ms: no spin is longer.

    Returns:
        Repeats in which the host was ahead; none if it stays behind the longest spin.
    """
    spin, behind, index = shortest_ms, 0, 0
    found: list[BehindSpin] = []
    started = time.perf_counter()
    while len(found) < repeats + warmup:
        over = time.perf_counter() - started > budget_s
        if over and len(found) >= warmup + 3:
            break
        one = once(index, spin)
        index += 1
        if one.ahead:
            behind = 0
            found.append(one)
        elif spin < longest_ms:
            spin = min(2 * spin, longest_ms)
        else:
            behind += 1
            if behind == CHANCES:
                return []
    return found[warmup:]


def cycles_per_ms(probe: int = 1_000_000) -> float:
    """Cycles that the spin kernel of the current device counts in a millisecond."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(probe)  # loads the kernel, wakes the clocks
    torch.cuda.synchronize()
    start.record()
    torch.cuda._sleep(probe)
    end.record()
    torch.cuda.synchronize()
    return probe / max(float(start.elapsed_time(end)), 1e-3)


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
