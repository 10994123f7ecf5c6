"""Timing: warm-up, repeats, median and spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


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


def measure(
    run: Callable[[], object],
    device: torch.device,
    *,
    warmup: int = 3,
    repeats: int = 20,
    budget_s: float = 10.0,
) -> Timing:
    """Time a call from start to end on an idle device: launches and host syncs included.

    On a GPU the time is between two CUDA events on the current stream, with the device idle before
    each repeat; on a CPU it is the clock's.

    Args:
        run: the call.
        device: where it runs.
        warmup: calls before the first that counts; fewer when they exceed the budget.
        repeats: calls that count.
        budget_s: stop repeating after this many seconds [s]; at least three repeats always count.
    """
    once = _by_events if device.type == "cuda" else _by_clock
    started = time.perf_counter()
    for _ in range(warmup):
        once(run, device)
        if time.perf_counter() - started > budget_s:
            break
    milliseconds: list[float] = []
    started = time.perf_counter()
    while len(milliseconds) < repeats:
        if len(milliseconds) >= 3 and time.perf_counter() - started > budget_s:
            break
        milliseconds.append(once(run, device))
    return Timing.of(milliseconds)


def _by_clock(run: Callable[[], object], device: torch.device) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _by_events(run: Callable[[], object], device: torch.device) -> float:
    with torch.cuda.device(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))
