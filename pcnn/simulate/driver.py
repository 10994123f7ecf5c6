"""Writes a whole simulated set by many processes: complete under its final name, or resumable.

The work on a set is cut into tasks whose files do not depend on one another nor on the process that
writes them. They are written into a hidden folder beside the root; a task that is done leaves its
result there, so that an interrupted or killed run goes on where it stopped. When every task is done
the marker is written and the folder takes its final name.
"""

from __future__ import annotations

import fcntl
import functools
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pcnn.console import Console
from pcnn.cores import available_cores
from pcnn.files.simulated import MARKER, read_marker, write_marker
from pcnn.files.whole_file import whole_file
from pcnn.plural import counted

Work = TypeVar("Work")
Result = TypeVar("Result")
Record = dict[str, Any]

_REQUEST = ".request.json"
_QUIET = 30.0  # [s] between two lines where there is no terminal for a bar
_DONE = ".done"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Task(Generic[Work]):
    """A part of a set that one process writes."""

    name: str  # unique in the set, usable as a file name
    work: Work  # argument of SetPlan.do; travels to another process by pickle
    units: int = 1  # scans, fragments, ... that it consists of, for the progress bar


@dataclass(frozen=True)
class SetPlan(Generic[Work]):
    """The parts of a set and the functions that make it."""

    request: Record  # everything that the bytes of the set depend on, as JSON
    tasks: Sequence[Task[Work]]  # the parts of the set, in any order
    prepare: Callable[[Path], None]  # makes the folders and files that belong to no task
    do: Callable[[Path, Work], Any]  # writes the files of a task and returns its result for finish
    finish: Callable[[Path, dict[str, Any]], Record]
    unit: str  # singular name of the units: scan


def write_set(
    root: str | Path, plan: SetPlan[Work], *, workers: int | None = None, progress: bool = True
) -> Path:
    """Write a simulated set, or go on with one that was interrupted.

    A set that exists already is left alone. A second process that asks for the same root waits
    and then finds it done.
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


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an advisory lock on a file for the length of a block, waiting until it is free.

    The kernel frees the lock when its holder ends, however it ends, so a lock is never stale. The
    empty file stays: to delete it would let a waiting and a new process lock two different files.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def in_processes(
    do: Callable[[Work], Result], works: Sequence[Work], workers: int
) -> Iterator[tuple[int, Result]]:
    """Do works in any order, by spawned processes if there are more than one of each."""
    if workers == 1 or len(works) < 2:
        yield from ((number, do(work)) for number, work in enumerate(works))
        return
    # spawned, not forked: a fork would copy the locks of all threads of this process
    with (
        _one_thread_each(),
        ProcessPoolExecutor(
            min(workers, len(works)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_end_with_parent,
        ) as pool,
    ):
        try:
            futures = {pool.submit(do, work): number for number, work in enumerate(works)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Let this worker end when its parent does, however that ends."""
    # Ctrl-C reaches all processes of a terminal; the parent ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that are started meanwhile compute with one thread, as there is one a core."""
    # read where numpy and torch are loaded, before any function of ours runs there
    given = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in given.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
    # under the lock nothing is being written: the folder was left by an interrupted process
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
    """Do the tasks that are left, then write the marker, last of all."""
    plan.prepare(partial)
    results = {task.name: partial / _DONE / f"{task.name}.json" for task in plan.tasks}
    left = [task for task in plan.tasks if not results[task.name].is_file()]
    # the largest first, so that no long one is left for a single process at the end
    if workers > 1:
        left.sort(key=lambda task: -task.units)
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
            works = [task.work for task in left]
            for number, result in in_processes(functools.partial(plan.do, partial), works, workers):
                task = left[number]
                _write_json(results[task.name], result)
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
    held = {name: json.loads(path.read_text()) for name, path in results.items()}
    record = plan.request | plan.finish(partial, held)
    shutil.rmtree(partial / _DONE)
    (partial / _REQUEST).unlink()
    write_marker(partial, record)
    console.print(f"simulated {counted(total, plan.unit)}: {root}", soft_wrap=True)
