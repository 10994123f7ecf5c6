"""Writes a whole simulated set by many processes: complete under its final name, or resumable.

The work on a set is cut into tasks whose files do not depend on one another nor on the process that
writes them. They are written into a hidden folder beside the root; a task that is done leaves its
result there, so that an interrupted or killed run goes on where it stopped. When every task is done
the marker is written and the folder takes its final name.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pcnn.console import Console
from pcnn.files.whole_file import whole_file
from pcnn.plural import counted
from pcnn.simulate.lock import exclusive
from pcnn.simulate.marker import MARKER, read_marker, write_marker

Work = TypeVar("Work")
Record = dict[str, Any]

_REQUEST = ".request.json"
_QUIET = 30.0  # [s] between two lines where there is no terminal for a bar
_DONE = ".done"


@dataclass(frozen=True)
class Task(Generic[Work]):
    """A part of a set that one process writes.

    Args:
        name: unique in the set, usable as a file name.
        work: what `SetPlan.do` is to do; travels to another process by pickle.
        units: scans, fragments, ... that it consists of, for the progress bar.
    """

    name: str
    work: Work
    units: int = 1


@dataclass(frozen=True)
class SetPlan(Generic[Work]):
    """What a set consists of and how it is made.

    Args:
        request: whatever the bytes of the set depend on, as JSON; it is stored in the marker, and a
            folder whose marker says anything else is another set.
        tasks: the parts of the set, in any order.
        prepare: makes the folders and files that belong to no task, in the folder it is given; may
            be called again on a folder that holds them.
        do: writes the files of a task and returns what `finish` needs of it, as JSON. A function of
            a module, so that other processes find it; called again it writes the same bytes.
        finish: writes what needs all results and returns what else the marker is to record; gets
            the folder and the results by the names of the tasks.
        unit: what is counted, singular: ``scan``.
    """

    request: Record
    tasks: Sequence[Task[Work]]
    prepare: Callable[[Path], None]
    do: Callable[[Path, Work], Any]
    finish: Callable[[Path, dict[str, Any]], Record]
    unit: str


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_set(
    root: str | Path, plan: SetPlan[Work], *, workers: int | None = None, progress: bool = True
) -> Path:
    """Write a simulated set, or go on with one that was interrupted.

    A set that is there already is left alone. A second process that asks for the same root waits
    and then finds it done.

    Args:
        root: the folder to write.
        plan: the set.
        workers: processes; None takes every core this process may use, 1 works in this one. More
            than one need the usual ``if __name__ == "__main__":`` in a script.
        progress: show a progress bar on a terminal; elsewhere a line at both ends, and one every
            half minute between.

    Returns:
        The root, as an absolute path.

    Raises:
        ValueError: fewer workers than 1, or two tasks of one name.
        FileExistsError: the root holds something else than the set asked for.
    """
    workers = available_cores() if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers={workers}: give at least 1 worker, or None for all cores")
    if len({task.name for task in plan.tasks}) < len(plan.tasks):
        raise ValueError("two tasks of a set have the same name")
    root = Path(root).absolute()
    console = Console(stderr=True, quiet=not progress)
    root.parent.mkdir(parents=True, exist_ok=True)

    def tell() -> None:
        console.print(f"waiting for another process, which writes {root}")

    with exclusive(root.parent / f".{root.name}.lock", tell):
        if _is_done(root, plan.request):
            return root
        partial = root.parent / f".{root.name}.partial"
        _open_partial(partial, plan.request)
        _write_tasks(partial, root, plan, workers, console)
        os.replace(partial, root)
    return root


def _is_done(root: Path, request: Record) -> bool:
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    if not (root / MARKER).is_file():
        raise FileExistsError(f"{root} exists and is not a simulated set; choose another folder")
    record = read_marker(root)
    differing = [
        f"{key} is {record.get(key)!r}, not {value!r}"
        for key, value in request.items()
        if record.get(key) != value
    ]
    if differing:
        raise FileExistsError(
            f"{root} holds another simulated set ({'; '.join(differing)}); "
            f"choose another folder or delete this one"
        )
    return True


def _open_partial(partial: Path, request: Record) -> None:
    """Keep an unfinished folder of the same request; replace any other by an empty one."""
    # under the lock nobody is at work, so whatever lies here was left by an interrupted process
    path = partial / _REQUEST
    if partial.exists() and (not path.is_file() or json.loads(path.read_text()) != request):
        shutil.rmtree(partial)
    (partial / _DONE).mkdir(parents=True, exist_ok=True)
    _write_json(path, request)


def _write_json(path: Path, content: Any) -> None:
    with whole_file(path) as file:
        file.write(json.dumps(content).encode())


def _write_tasks(
    partial: Path, root: Path, plan: SetPlan[Work], workers: int, console: Console
) -> None:
    """Do what is left to do, then write the marker, last of all."""
    plan.prepare(partial)
    left = [task for task in plan.tasks if not (partial / _DONE / f"{task.name}.json").is_file()]
    total = sum(task.units for task in plan.tasks)
    done = total - sum(task.units for task in left)
    if not console.is_terminal:
        going_on = f" ({done} done already)" if done else ""
        console.print(
            f"simulating {counted(total, plan.unit)}{going_on} for {root}", soft_wrap=True
        )
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{plan.unit}s"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal or console.quiet,
    )
    with bar:
        shown = bar.add_task(plan.unit, total=total, completed=done)
        told = time.monotonic()
        try:
            for task, result in _run(partial, plan, left, workers):
                _write_json(partial / _DONE / f"{task.name}.json", result)
                bar.advance(shown, task.units)
                done += task.units
                if not console.is_terminal and time.monotonic() - told > _QUIET:
                    told = time.monotonic()
                    console.print(f"{done} of {counted(total, plan.unit)}")
        except BaseException:
            console.print(
                f"stopped after {done} of {counted(total, plan.unit)}; "
                "the same command continues from there"
            )
            raise
    results = {
        task.name: json.loads((partial / _DONE / f"{task.name}.json").read_text())
        for task in plan.tasks
    }
    record = plan.request | plan.finish(partial, results)
    shutil.rmtree(partial / _DONE)
    (partial / _REQUEST).unlink()
    write_marker(partial, record)
    console.print(f"simulated {counted(total, plan.unit)}: {root}", soft_wrap=True)


def _run(
    folder: Path, plan: SetPlan[Work], tasks: list[Task[Work]], workers: int
) -> Iterator[tuple[Task[Work], Any]]:
    """Do the tasks in whatever order; yield each with its result as it is done."""
    if workers == 1 or len(tasks) < 2:
        for task in tasks:
            yield task, plan.do(folder, task.work)
        return
    # spawned, not forked: a fork would copy the locks of whatever threads this process runs
    context = multiprocessing.get_context("spawn")
    # the largest first, so that no long one is left for a single process at the end
    order = sorted(tasks, key=lambda task: -task.units)
    # Ctrl-C reaches all processes of a terminal; this one ends the others
    with ProcessPoolExecutor(
        min(workers, len(tasks)),
        mp_context=context,
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    ) as pool:
        try:
            futures = {pool.submit(plan.do, folder, task.work): task for task in order}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
