"""Independent launches on several streams of a device (Minuet, section 5.2.2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch


def run_on_streams(jobs: Sequence[Callable[[], object]], device: torch.device, n: int) -> None:
    """Run launches one after another, or spread over ``n`` side streams.

    The current stream waits for all of them, so memory that is freed later is not handed out before
    they are done with it.
    """
    n = min(n, len(jobs))
    if n <= 1 or device.type != "cuda":
        for job in jobs:
            job()
        return
    current = torch.cuda.current_stream(device)
    begin = current.record_event()
    try:
        for number, stream in enumerate(_streams(device)[:n]):
            torch.cuda.set_stream(stream)
            stream.wait_event(begin)
            for job in jobs[number::n]:
                job()
            current.wait_event(stream.record_event())
    finally:
        torch.cuda.set_stream(current)


#: Streams that are kept for a device: as many as Minuet has.
MOST_STREAMS = 4


@functools.cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(MOST_STREAMS))
