"""How many processes load the samples of a training."""

from __future__ import annotations

#: More hardly help: a large scan takes 40 ms of a core, a step 10 ms of a GPU.
MOST = 16
#: On a CPU, whose steps take longer than any sample.
MOST_FOR_CPU = 2


def worker_count(given: int | None, cores: int, on_cpu: bool) -> int:
    """Return the number of worker processes of a loader."""
    if given is not None:
        return min(given, max(1, cores))
    most = MOST_FOR_CPU if on_cpu else MOST
    return max(0, min(cores - 1, most))
