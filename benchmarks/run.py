"""The one loop of all scripts: a case is checked against float64, then timed, then a row."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.rows import Row
from pcnn.runtime.timing import Call, Repeats, Trace, cache_flush, measure, trace

#: Makes the call of the next repeat; what it does is not timed.
Prepare = Callable[[], Call]
#: Decimals of milliseconds and megabytes: a tenth of a microsecond is noise.
DIGITS = 4


@dataclass
class Options:
    """What is measured, and how: one option of the command line each."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))  # where
    # float16, bfloat16, tf32, float32 or float64; empty: float16 on a GPU, else float32
    dtype: str = ""
    engines: Sequence[str] = ()  # names of ours and of installed packages; none: all of ours
    workloads: Sequence[str] = ()  # files of cells and names of generated scenes
    clouds: Sequence[str] = ()  # files of points and names of simulated rooms
    models: Sequence[str] = ()  # networks; none: those of the script
    modes: Sequence[str] = ()  # modes of networks, or kinds of layers; none: all
    shapes: Sequence[str] = ()  # layers as `c_in:c_out:size` or `c_in:c_out:size:stride`
    kernels: Sequence[str] = ("3:1", "5:1", "2:2", "3:2")  # of maps, as `size:stride`
    products: Sequence[str] = ()  # of maps
    sizes: Sequence[float] = (10, 50, 100, 500, 1000)  # of generated scenes and rooms, in thousands
    kernel_sizes: Sequence[int] = (3, 7, 13)  # of figures over them
    rooms: int = 10  # simulated rooms
    width: float = 1.0  # factor on the channels of networks
    check: int = 200_000  # sites that a larger network is checked on
    repeats: int = 20  # timed calls
    runs: int = 1  # how often everything is timed
    budget: float = 1.0  # longest time spent on one kind of time of a row [s]
    limit: float = float("inf")  # seconds after which a figure begins no further case
    memory: float | None = None  # memory that the largest clouds may take [GB]
    largest: float = 400_000  # cloud of figures about memory, in thousands of points
    sites: str = "floor"  # of strided layers, `floor` or `reached`
    cold: bool = False  # empty the cache before every call
    traced: bool = True  # count launches and waits
    gate: bool = False  # hold engines to the whole check of their parts first
    # file that processes on one device share: they check side by side, one of them times
    lock: Path | None = None

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        if not self.dtype:
            self.dtype = "float16" if self.device.type == "cuda" else "float32"

    @property
    def is_late(self) -> bool:
        """Whether no further case begins."""
        return time.monotonic() - self.began > self.limit

    @property
    def often(self) -> Repeats:
        """How often a call is timed."""
        return Repeats(self.repeats, 3, self.budget)

    @cached_property
    def turns(self) -> Turns | None:
        """The lock of this process, if it shares its device."""
        return Turns(self.lock) if self.lock else None


@dataclass(frozen=True, eq=False)
class Case:
    """One call to be measured."""

    row: Row  # all that its rows say but the result
    # compares its result with the reference; what it returns is measured. Its error leaves the case
    # without times
    check: Callable[[], Any]
    # further keys of a row, and its result, for every row; `timed` unless given
    measure: Measure | None = None


Measure = Callable[[Any, Options], Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]]


def run(cases: Iterable[Case], options: Options) -> Iterator[Row]:
    """Check all cases, then time those that pass, in turn and run by run.

    References may take gigabytes, and are given back before anything is timed. A case that is
    wrong, or cannot be served, becomes a row whose result ``left_out`` holds the error.
    """
    passed: list[tuple[Row, Any, Measure]] = []
    left = iter(cases)
    while True:
        with checking(options):  # making a case may compute what it is held against
            case = next(left, None)
            if case is None:
                break
            found = _checked(case, options)
        row = case.row
        if isinstance(found, dict):
            yield found
        else:
            passed.append((row, found[0], case.measure or timed))
        del case, found  # nor their references
    if not passed:
        return
    with timing(options):  # of all cases together: others check before and after
        for number in range(options.runs):
            for row, made, measured in passed:
                own = {**row, "run": number} if options.runs > 1 else row
                yield from _measured(own, made, measured, options)


def _measured(row: Row, made: Any, measured: Measure, options: Options) -> Iterator[Row]:
    try:
        for keys, result in measured(made, options):
            yield {**row, **keys, "result": rounded(result)}
    except Exception as error:  # out of memory, at the full size only
        yield _left_out(row, error)


def _checked(case: Case, options: Options) -> tuple[Any] | Row:
    if options.is_late:
        return _left_out(case.row, "out of time")
    try:
        return (case.check(),)
    except Exception as error:  # a compiler's errors have no base of their own
        return _left_out(case.row, error)


def _left_out(row: Row, error: BaseException | str) -> Row:
    reason = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return {**row, "result": {"left_out": reason}}


def rounded(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as rows hold it: no more digits than it has, no missing values."""
    found = ((k, round(v, DIGITS) if isinstance(v, float) else v) for k, v in result.items())
    return {key: value for key, value in found if value is not None}


def same(call: Call) -> Prepare:
    """One call for all repeats."""
    return lambda: call


def timed(prepare: Prepare, options: Options) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """One row: a call in every way that its device knows."""
    flush = cache_flush(options.device) if options.cold else None
    held: list[Call] = []

    def before() -> None:
        held[:] = [prepare()]
        if flush:
            flush()

    found = measure(
        lambda: held[0](), options.device, options.often, before=before, traced=options.traced
    )
    yield ({"cache": "cold"} if options.cold else {}), found


def by_part(
    split: Callable[[Sequence[tuple[str, float]]], Mapping[str, float]],
    name: str = "part",
    kept: Sequence[str] | None = None,
) -> Measure:
    """Measurement of a row a part of a call, read off its trace: ``busy_ms``."""

    def rows(prepare: Prepare, options: Options) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        spent = split(middle_trace(prepare, options).timeline)
        if any(spent.values()):  # the profiler tells nothing elsewhere
            for part in spent if kept is None else kept:
                yield {name: part}, {"busy_ms": spent[part]}

    return rows


def middle_trace(prepare: Prepare, options: Options) -> Trace:
    """The one of three traces whose time on the device is the median; of few repeats one."""
    prepare()()
    found = [trace(prepare(), options.device) for _ in range(3 if options.repeats >= 20 else 1)]
    return sorted(found, key=lambda seen: seen.busy_ms)[len(found) // 2]


class Turns:
    """Locks of processes on one device: they check side by side, and one of them times alone.

    A process that has just let a lock go is often the quickest to take it again. So there is a
    gate, held while one waits for the lock: behind a process that waits to time nobody begins.
    """

    def __init__(self, file: Path) -> None:
        self._lock = file.open("a")
        self._gate = file.with_name(f"{file.name}.gate").open("a")

    @contextlib.contextmanager
    def of(self, kind: int) -> Iterator[None]:
        """Hold the lock as `fcntl.LOCK_SH` or `fcntl.LOCK_EX`."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, kind)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def checking(options: Options) -> contextlib.AbstractContextManager[None]:
    """While a case is checked."""
    return options.turns.of(fcntl.LOCK_SH) if options.turns else contextlib.nullcontext()


def timing(options: Options) -> contextlib.AbstractContextManager[None]:
    """While a case is timed."""
    return options.turns.of(fcntl.LOCK_EX) if options.turns else contextlib.nullcontext()
