"""Simulators: settings that are drawn, and sets that many processes write, whole or not at all.

The work on a set is cut into tasks whose files do not depend on one another nor on the process that
writes them. They are written into a hidden folder beside the root; a task that is done leaves its
result there, so that an interrupted or killed run goes on where it stopped. When every task is done
the marker is written and the folder takes its final name.
"""

from __future__ import annotations

import functools
import inspect
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from pcnn.config.make import check
from pcnn.console import Console, progress
from pcnn.cores import available_cores
from pcnn.files.simulated import MARKER, read_marker, write_marker
from pcnn.files.whole_file import locked, whole_file
from pcnn.messages import counted

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Range = tuple[float, float]
Work = TypeVar("Work")
Result = TypeVar("Result")
Record = dict[str, Any]

_REQUEST, _DONE = ".request.json", ".done"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def drawn(train: Range, held_out: Range | None = None) -> Any:
    """Declare a field that is drawn evenly; ``val`` and ``test`` may have a range of their own."""
    return field(metadata={"train": train, "held_out": held_out or train})


def draw(rng: np.random.Generator, settings: type, split: Split = "train") -> dict[str, float]:
    """Draw the fields that a dataclass declares by `drawn`."""
    ranges = "train" if split == "train" else "held_out"
    declared = [f for f in fields(settings) if f.metadata]
    return {f.name: round(float(rng.uniform(*f.metadata[ranges])), 6) for f in declared}


@dataclass(frozen=True)
class Task(Generic[Work]):
    """A part of a set that one process writes."""

    name: str  # unique in the set, usable as a file name
    work: Work  # argument of SetPlan.do; travels to another process by pickle
    units: int = 1  # scans, fragments, ... that it consists of


@dataclass(frozen=True)
class SetPlan(Generic[Work]):
    """The parts of a set and the functions that make it."""

    tasks: Sequence[Task[Work]]  # in any order
    do: Callable[[Path, Work], Any]  # writes the files of a task and returns its result for finish
    finish: Callable[[Path, dict[str, Any], int], Record]  # by so many workers: what is no task's
    unit: str  # singular name of the units: scan


@dataclass(frozen=True)
class Simulator:
    """A simulator of sets in one official format."""

    name: str  # of the format, as the folders begin
    version: str  # changes whenever the same seed would give other bytes
    plan: Callable[..., SetPlan[Any]]  # by keyword arguments, on which alone the bytes depend

    def folder(self, data_dir: str | Path, arguments: Mapping[str, Any]) -> Path:
        """DATA_DIR/simulated/NAME-SEED-VERSION, with the arguments that are not defaults."""
        known = inspect.signature(self.plan).parameters
        other = "".join(
            f"-{key}-{arguments[key]}"
            for key in known
            if key != "seed" and key in arguments and arguments[key] != known[key].default
        )
        seed = arguments.get("seed", 0)
        return Path(data_dir) / "simulated" / f"{self.name}-{seed}-{self.version}{other}"

    def write(
        self,
        root: str | Path,
        *,
        workers: int | None = None,
        progress: bool = True,
        **arguments: Any,
    ) -> Path:
        """Write a simulated set, or go on with one that was interrupted.

        Equal arguments and an equal version give equal bytes on a machine, for any number of
        worker processes. A set that exists already is left alone. A second process that asks for
        the same root waits and then finds it done.

        Raises ConfigError for an argument of the plan that is out of its range, FileExistsError
        where the folder holds something else.
        """
        check(self.plan, arguments, "simulate")
        workers = available_cores() if workers is None else workers
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        defaults = {k: p.default for k, p in inspect.signature(self.plan).parameters.items()}
        request = {"format": self.name, "version": self.version, **defaults, **arguments}
        plan = self.plan(**arguments)
        root = Path(root).absolute()
        console = Console(stderr=True, quiet=not progress)
        # never deleted: a waiting and a new process would lock two different files
        with locked(root.parent / f".{root.name}.lock"):
            if not _is_done(root, request):
                partial = root.parent / f".{root.name}.partial"
                _write(partial, plan, request, workers, console)
                os.replace(partial, root)
                console.say(f"simulated {root}")
        return root


def in_processes(
    do: Callable[[Work], Result], works: Sequence[Work], workers: int
) -> Iterator[tuple[int, Result]]:
    """Do works in any order, by spawned processes of one thread if there are more than one."""
    if workers == 1 or len(works) < 2:
        yield from ((number, do(work)) for number, work in enumerate(works))
        return
    # spawned, not forked: a fork would copy the locks of all threads of this process; threads are
    # counted where numpy and torch are loaded, before any function of ours runs there
    pool = ProcessPoolExecutor(
        min(workers, len(works)), multiprocessing.get_context("spawn"), _end_with_parent
    )
    with _one_thread_each(), pool:
        try:
            futures = {pool.submit(do, work): number for number, work in enumerate(works)}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _one_thread_each() -> Iterator[None]:
    given = dict(os.environ)
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(given)


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


def _is_done(root: Path, request: Record) -> bool:
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    if not (root / MARKER).is_file():
        raise FileExistsError(f"{root} exists and is not a simulated set")
    record = read_marker(root)
    differing = [key for key, value in request.items() if record.get(key) != value]
    if differing:
        raise FileExistsError(f"{root} holds a simulated set of other {', '.join(differing)}")
    return True


def _write(
    partial: Path, plan: SetPlan[Work], request: Record, workers: int, console: Console
) -> None:
    """Do the tasks that are left of an unfinished set, then write the marker, last of all."""
    # under the lock nothing is being written: the folder was left by an interrupted process
    if partial.exists() and _read_json(partial / _REQUEST) != request:
        shutil.rmtree(partial)
    (partial / _DONE).mkdir(parents=True, exist_ok=True)
    _write_json(partial / _REQUEST, request)
    results = {task.name: partial / _DONE / f"{task.name}.json" for task in plan.tasks}
    left = [task for task in plan.tasks if not results[task.name].is_file()]
    # the largest first, so that no long one is left for a single process at the end
    if workers > 1:
        left.sort(key=lambda task: -task.units)
    units = sum(task.units for task in left)
    console.say(f"simulating {counted(units, plan.unit)}")
    with progress(console, "simulating", units) as advance:
        do = functools.partial(plan.do, partial)
        for number, result in in_processes(do, [task.work for task in left], workers):
            _write_json(results[left[number].name], result)
            advance(left[number].units)
    done = {name: _read_json(path) for name, path in results.items()}
    record = plan.finish(partial, done, workers)
    shutil.rmtree(partial / _DONE)
    (partial / _REQUEST).unlink()
    write_marker(partial, request | record)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.is_file() else None


def _write_json(path: Path, content: Any) -> None:
    with whole_file(path) as file:
        file.write(json.dumps(content).encode())
