"""The number of cores that a process may use, and how long its threads spin on them."""

from __future__ import annotations

import os
from pathlib import Path

#: Turns of a thread of OpenMP that waits, some 10 microseconds, before it sleeps. GCC's own 300,000
#: cost a training ten times its speed where another process wants the core; without any, a training
#: that has the machine for itself takes twice as long.
SPINS = "500"

#: Share of time that a container may have, as the kernel tells it inside of one.
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_cores() -> int:
    """Return the number of cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = map(int, _QUOTA.read_text().split())
        return max(1, min(cores, quota // period))
    except (OSError, ValueError):  # no container, or `max`
        return cores


def spin_briefly() -> None:
    """Let threads that wait leave their cores soon; only works before torch is imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
