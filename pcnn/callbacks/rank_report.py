"""The text about a rank that ended a training: which one, where it stood, how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pcnn.callbacks.rank_board import Standing
from pcnn.checkpoints.checkpoint_file import CheckpointError, RunCheckpoint

#: Calls of a stack that are shown.
SHOWN = 8
#: Files in which a rank waits for others.
WAITS = ("distributed_c10d.py", "distributed.py", "parallel_strategy", "autograd/graph.py")

ADVICE = {
    "was killed": "the system kills a process where memory ran out (dmesg tells): fewer "
    "dataset.num_workers, or a smaller dataset.batch_size; a scheduler kills beyond its limits",
    "is gone": "see what ended it above, or in the log of its machine",
    "failed": "see its message above, or in the log of its machine",
    "hangs": "mend what it waits for, or give it longer: callbacks.rank_watch.timeout=SECONDS",
}


def report(
    culprits: Sequence[Standing],
    known: Sequence[Standing],
    what: str,
    timeout: float,
    last: str,
    run_folder: str | Path | None,
) -> str:
    """A message about a rank that failed."""
    lines = []
    if what == "hangs":
        stuck = suspects(culprits)
        for one in stuck:
            lines.append(
                f"{one.name} of {len(known)} has not moved for {timeout:g} s: it {one.doing}, in"
            )
            lines += [f"  {call}" for call in one.stack.splitlines()[:SHOWN]]
        waiting = [one for one in culprits if one not in stuck]
        lines += [f"{one.name} waits for it: it {one.doing}" for one in waiting[:SHOWN]]
    else:
        for one in culprits:
            lines.append(f"{one.name} of {len(known)} {what}: it {one.doing}. {one.error}".rstrip())
    machine = "look at that machine and the network, then start the run again"
    lines.append(f"possible: {ADVICE.get(what, machine)}")
    return "\n".join([*lines, kept(last, run_folder)])


def suspects(ranks: Sequence[Standing]) -> list[Standing]:
    """Those of the ranks that stand for longest whom the others wait for.

    They do not stand in a collective; where all do, they are behind, and else all of them.
    """
    free = [one for one in ranks if not any(place in one.stack for place in WAITS)]
    found = free or list(ranks)
    behind = min(one.steps for one in found)
    return [one for one in found if one.steps == behind]


def kept(last: str, run_folder: str | Path | None) -> str:
    """The checkpoint to go on from, in words."""
    if not last or not Path(last).is_file():
        return "no checkpoint was written yet: the same command starts again"
    try:
        steps = f", step {RunCheckpoint.read(last).steps}"
    except CheckpointError:
        steps = ""
    where = f": resume={run_folder} goes on" if run_folder is not None else ""
    return f"kept: {last}{steps}{where}, on any number of devices"
