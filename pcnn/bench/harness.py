"""Measuring a call: wall time, GPU time, peak memory, launches and host syncs.

*Wall* time is from start to end on an idle device: launch gaps, host syncs and Python count. *GPU*
time is that of the same region enqueued behind a kernel that only spins
(`pcnn.runtime.timing.behind_spin`): no launch gaps. That holds only if the host has enqueued
everything before the spin ends, which every repeat checks; a spin that was too short is doubled. A
call that waits for the device can never be ahead. It is recognised by staying behind the longest
spin, and has no such time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from pcnn.bench.trace import Call as Call
from pcnn.bench.trace import count_sync_warnings, trace
from pcnn.bench.turns import measuring
from pcnn.runtime.timing import behind_spin

#: The call of a repeat, from the number of the repeat. Its preparation is not measured.
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
        p95: 95 in a hundred took at most this.
        p99: 99 in a hundred took at most this; of fewer repeats the slowest.
    """

    median: float
    fastest: float
    p90: float
    repeats: int
    p95: float
    p99: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> Timing:
        """Summarise repeats.

        Raises:
            ValueError: no repeat at all.
        """
        if not milliseconds:
            raise ValueError("no repeats to summarise")
        ordered = sorted(milliseconds)
        p90, p95, p99 = (percentile(ordered, percent) for percent in (90, 95, 99))
        return cls(statistics.median(ordered), ordered[0], p90, len(ordered), p95, p99)

    def columns(self, tails: bool = False) -> dict[str, float]:
        """Wall time as fields of a result row; ``tails`` adds p95 and p99."""
        found = rounded(wall_ms=self.median, min_ms=self.fastest, p90_ms=self.p90)
        return found | (rounded(p95_ms=self.p95, p99_ms=self.p99) if tails else {})


def percentile(values: Sequence[float], percent: int) -> float:
    """Nearest rank: the smallest value that at least so many percent do not exceed."""
    return sorted(values)[-(-len(values) * percent // 100) - 1]


def rounded(**values: float) -> dict[str, Any]:
    """Milliseconds and megabytes as result rows hold them."""
    return {name: round(value, DIGITS) for name, value in values.items()}


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
class Repeats:
    """How often a call is timed.

    Args:
        count: calls that count.
        warmup: calls before the first that counts, for every kind of time.
        budget_s: no call begins after this many seconds [s], counted for every kind of time; at
            least three calls always count.
    """

    count: int = 20
    warmup: int = 3
    budget_s: float = 10.0


def measure(
    calls: Calls,
    device: torch.device,
    often: Repeats,
    *,
    cold: bool = False,
    count: bool = True,
    tails: bool = False,
) -> dict[str, Any]:
    """Measure a call in every way its device knows.

    GPU and host time are those behind a spin kernel; absent for a call that waits for the device.
    Memory is the peak of the allocator above what was allocated before the call [MiB].
    Figures that a device cannot measure are absent: a CPU measures the wall time alone.

    Args:
        calls: the call of every repeat (`Calls`).
        device: where it runs.
        often: how often it is timed.
        cold: flush the last-level cache before every repeat.
        count: count launches and syncs under the profiler too, which takes a tenth of a second.
        tails: tell p95 and p99 of the wall time too.

    Returns:
        Fields of a result row; fastest and p90 are of the wall time, as in the peers' rows.
    """
    flush = CacheFlush(device) if cold else None
    wall = wall_time(calls, device, often, flush)
    found: dict[str, Any] = {**wall.columns(tails), "cache": "cold" if cold else "warm"}
    if device.type != "cuda":
        return found
    if behind := gpu_time(calls, device, often, flush):
        found |= rounded(gpu_ms=behind[0].median, host_ms=behind[1].median)
    found["syncs"] = count_sync_warnings(calls(0), device)
    found |= rounded(memory_mb=peak_memory_mb(calls(0), device))
    seen = trace(calls(0), device) if count else None
    if seen is not None and seen.timeline:  # empty where CUPTI is not served
        found |= rounded(gpu_busy_ms=seen.busy_ms)
        found |= {"launches": seen.launches, "syncs": max(found["syncs"], seen.syncs)}
    return found


def wall_time(
    calls: Calls,
    device: torch.device,
    often: Repeats,
    flush: Callable[[], None] | None = None,
    on_host: bool = False,
) -> Timing:
    """Time calls from start to end on an idle device: launches and host syncs included.

    On a GPU the time is between two CUDA events on the current stream, with the device idle before
    each repeat; on a CPU, and where ``on_host`` asks for it, it is the clock's until the device is
    idle again. ``flush`` runs before every call (`CacheFlush`).
    """
    return Timing.of(wall_times(calls, device, often, flush, on_host))


@measuring()
def wall_times(
    calls: Calls,
    device: torch.device,
    often: Repeats,
    flush: Callable[[], None] | None = None,
    on_host: bool = False,
) -> list[float]:
    """Wall time of every repeat [ms], in their order; arguments as in `wall_time`."""
    once = _by_events if device.type == "cuda" and not on_host else _by_clock
    started = time.perf_counter()
    for index in range(often.warmup):
        once(calls(index), device, flush)
        if time.perf_counter() - started > often.budget_s:
            break
    milliseconds: list[float] = []
    started = time.perf_counter()
    for index in range(often.warmup, often.warmup + often.count):
        if len(milliseconds) >= 3 and time.perf_counter() - started > often.budget_s:
            break
        milliseconds.append(once(calls(index), device, flush))
    return milliseconds


def _by_clock(call: Call, device: torch.device, flush: Callable[[], None] | None) -> float:
    if flush:
        flush()
    idle(device)
    start = time.perf_counter()
    kept = call()
    idle(device)
    took = 1e3 * (time.perf_counter() - start)
    del kept  # freed after the clock has stopped
    return took


def idle(device: torch.device) -> None:
    """Wait until a GPU has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@measuring()
def back_to_back_ms(calls: Calls, device: torch.device, often: Repeats) -> float:
    """Time of a call among many that follow each other, the host waiting after the last [ms].

    Three rounds of ``often.count`` calls, or of as many as fit into the budget; the median of the
    rounds counts.
    """
    for index in range(often.warmup):
        calls(index)()
    once = wall_times(calls, device, Repeats(3, 0), on_host=True)
    count = max(1, min(often.count, int(1e3 * often.budget_s / 3 / max(*once, 1e-3))))
    rounds = []
    for _ in range(3):
        ready = [calls(number) for number in range(count)]
        idle(device)
        start = time.perf_counter()
        for call in ready:
            call()
        idle(device)
        rounds.append(1e3 * (time.perf_counter() - start) / count)
    return statistics.median(rounds)


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


class BehindSpin(NamedTuple):
    """Times of one repeat; ``ahead`` if the host had enqueued everything before the spin ended."""

    gpu_ms: float
    host_ms: float
    ahead: bool


@measuring()
def gpu_time(
    calls: Calls,
    device: torch.device,
    often: Repeats,
    flush: Callable[[], None] | None = None,
) -> tuple[Timing, Timing] | None:
    """Time calls on a CUDA device between two events behind a spin kernel.

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

        found = while_ahead(once, often)
    if not found:
        return None
    return Timing.of([one.gpu_ms for one in found]), Timing.of([one.host_ms for one in found])


def while_ahead(once: Callable[[int, float], BehindSpin], often: Repeats) -> list[BehindSpin]:
    """Repeat a measurement, with spins as long as it takes for the host to be ahead.

    Args:
        once: measures, from the number of the repeat and a spin [ms].
        often: how often.

    Returns:
        Repeats in which the host was ahead; none if it stays behind the longest spin.
    """
    spin, behind, index = SHORTEST_MS, 0, 0
    found: list[BehindSpin] = []
    started = time.perf_counter()
    while len(found) < often.count + often.warmup:
        over = time.perf_counter() - started > often.budget_s
        if over and len(found) >= often.warmup + 3:
            break
        one = once(index, spin)
        index += 1
        if one.ahead:
            behind = 0
            found.append(one)
        elif spin < LONGEST_MS:
            spin = min(2 * spin, LONGEST_MS)
        else:
            behind += 1
            if behind == CHANCES:
                return []
    return found[often.warmup :]


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
