"""GPU time of a call without the gaps between its launches.

The call is enqueued behind a kernel that only spins, so the host runs ahead and the device finds
all of the call's work waiting:

    host:    spin | start | call.............. | end
    device:  spinning.................. | start | work | end

That holds only if the host has enqueued everything before the spin ends; every repeat checks it
(the start event must still be pending when the end event has been recorded). A spin that was too
short is doubled. A call that waits for the device can never be ahead: it is recognised by staying
behind the longest spin, and has no such time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pcnn.bench.calls import Calls
from pcnn.bench.timing import Timing

#: First spin [ms].
SHORTEST_MS = 1.0
#: A host that is behind this spin [ms] is taken to wait for the device.
LONGEST_MS = 32.0
#: Chances that a call gets behind the longest spin: the host may have been interrupted.
CHANCES = 3


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
            call = calls(index)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            if flush:
                flush()
            torch.cuda._sleep(int(spin_ms * cycles))
            start.record()
            began = time.perf_counter()
            kept = call()  # freed after the end event: a deallocation may take host time
            host_ms = 1e3 * (time.perf_counter() - began)
            end.record()
            ahead = not start.query()
            torch.cuda.synchronize()
            del kept
            return BehindSpin(float(start.elapsed_time(end)), host_ms, ahead)

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
