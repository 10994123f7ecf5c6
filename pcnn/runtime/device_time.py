"""Time of a call on its device without the host's share, and its lower bound.

All repeats are enqueued behind a kernel that only spins, so the device finds them waiting:

    host:    spin | event call event | event call event | ...
    device:  spinning........................... | call | call | ...

That holds only if the spin was still running when the last repeat was enqueued. This is checked; a
spin that was too short is doubled.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

#: First spin and longest spin, in cycles of the device (about 1 and 64 ms).
SHORTEST, LONGEST = 2_000_000, 128_000_000


#: Device memory, bytes read plus bytes written [bytes/s], by a word in the device's name: a copy of
#: gigabytes from device to device.
BANDWIDTH = {"H200": 4.2e12, "H100": 3.0e12}
#: Matrix products [operations/s] by the same word and the dtype: a square product of 8192.
MATRIX_RATE = {
    ("H200", "float16"): 7.2e14,
    ("H200", "bfloat16"): 7.37e14,
    ("H200", "tf32"): 3.82e14,
}


def device_ms(
    call: Callable[[], Any], device: torch.device, *, warmup: int = 2, repeats: int = 9
) -> float:
    """Median time of a call whose operands are in the cache as far as they fit [ms].

    On a GPU from event to event. A call that waits for the device, or enqueues more than its queue
    holds, cannot be enqueued ahead: its time includes the gaps, as its user's would. On a CPU the
    clock's.

    Args:
        call: its result is dropped.
        device: where it runs.
        warmup: calls before those that count.
        repeats: calls that count.
    """
    for _ in range(warmup):
        call()
    if device.type != "cuda":
        return statistics.median(_by_clock(call) for _ in range(repeats))
    with torch.cuda.device(device):
        times = _behind_spin(call, repeats)
        if times is None:
            single = [_behind_spin(call, 1) for _ in range(repeats)]
            times = [ms for found in single for ms in found or ()]
        return statistics.median(times or [_between_events(call) for _ in range(repeats)])


def flowing_ms(
    call: Callable[[], Any], device: torch.device, *, warmup: int = 2, repeats: int = 9
) -> float:
    """Time of a call among others like it [ms]: the host's share or the device's, the longer one.

    As in a network whose layers the host issues one after another, without a wait between them.

    Args:
        call: as in `device_ms`, with the following.
        device: ...
        warmup: ...
        repeats: calls of a round; the median of three rounds counts.
    """
    for _ in range(warmup):
        call()

    def round_of_calls() -> None:
        for _ in range(repeats):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    round_of_calls()
    return statistics.median(_by_clock(round_of_calls) for _ in range(3)) / repeats


def _by_clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def _between_events(call: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _behind_spin(call: Callable[[], Any], repeats: int) -> list[float] | None:
    """Time of every repeat, ``None`` if the host was behind the longest spin."""
    spin = SHORTEST
    while spin <= LONGEST:
        times, ahead = behind_spin([call] * repeats, spin)
        if ahead:
            return [device for device, _ in times]
        spin *= 2
    return None


def behind_spin(
    calls: Sequence[Callable[[], Any]],
    cycles: int,
    before: Callable[[], Any] | None = None,
) -> tuple[list[tuple[float, float]], bool]:
    """Enqueue calls on the current CUDA device behind one spin.

    Args:
        calls: what is timed; results are dropped, each after the event that ends its call.
        cycles: of the spin.
        before: enqueued before the spin, on an idle device.

    Returns:
        Times of every call on the device and of the host [ms], and whether the host had enqueued
        all before the spin ended; otherwise the times on the device include gaps.
    """
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in calls]
    host = []
    torch.cuda.synchronize()
    if before:
        before()
    torch.cuda._sleep(cycles)
    for call, (start, end) in zip(calls, events, strict=True):
        start.record()
        began = time.perf_counter()
        kept = call()  # freed after the end event: a deallocation may take host time
        host.append(1e3 * (time.perf_counter() - began))
        end.record()
        del kept
    ahead = not events[0][0].query()
    torch.cuda.synchronize()
    device = [float(start.elapsed_time(end)) for start, end in events]
    return list(zip(device, host, strict=True)), ahead


def known_bandwidth(device_name: str) -> float | None:
    """Bandwidth of a device by its name, ``None`` if it is not in `BANDWIDTH`."""
    return next((rate for word, rate in BANDWIDTH.items() if word in device_name), None)


def known_matrix_rate(device_name: str, dtype: str) -> float | None:
    """Rate of matrix products of a device by its name and a dtype, ``None`` if it is unknown."""
    rates = (
        rate for (word, name), rate in MATRIX_RATE.items() if word in device_name and name == dtype
    )
    return next(rates, None)


def convolution_floor_ms(
    device_name: str, dtype: str, multiplications: int, moved_bytes: int
) -> float | None:
    """Lower bound of a convolution: the longer of its arithmetic and its memory traffic [ms].

    Args:
        device_name: as torch gives it.
        dtype: of features and weights.
        multiplications: ``|T| C_in C_out``, of all products together.
        moved_bytes: operands and results, each once.

    Returns:
        ``None`` where one of the two rates is unknown.
    """
    rate, bandwidth = known_matrix_rate(device_name, dtype), known_bandwidth(device_name)
    if rate is None or bandwidth is None:
        return None
    return 1e3 * max(2 * multiplications / rate, moved_bytes / bandwidth)
