"""The number of cores that a process may use, and how long its threads spin on them."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

#: Turns of a thread of OpenMP that waits, some 10 microseconds, before it sleeps. GCC's own 300,000
#: cost a training ten times its speed where another process wants the core; without any, a training
#: that has the machine for itself takes twice as long.
SPINS = "500"

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Return the number of cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def _quota() -> float | None:
    """Cores whose time the control groups (version 2) of this process have; None: no limit."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    place, found = PurePosixPath(own), []
    for group in (place, *place.parents):
        try:
            text = (_GROUPS / str(group).lstrip("/") / "cpu.max").read_text()
        except OSError:  # the root has none, nor have groups outside of a container
            continue
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            found.append(int(quota) / max(1, int(period)))
    return min(found, default=None)


def spin_briefly() -> None:
    """Let threads that wait leave their cores soon; only works before torch is imported."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
