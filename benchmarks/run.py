"""The one loop of all scripts: a case is checked against float64, then timed, then a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.measured import Repeats, Trace, measure, trace
from benchmarks.rows import Row
from pcnn.runtime.timing import Call

Prepare = Callable[[], Call]  # makes the call of the next repeat; what it does is not timed
DIGITS = 4  # decimals of milliseconds and megabytes: a tenth of a microsecond is noise
CPU = torch.device("cpu")


def option(value: Any, about: str, flag: str = "", **words: Any) -> Any:
    """A field that is an option of the command line; ``words`` are those of `argparse`."""
    if value == ():
        own: dict[str, Any] = {"action": "append", "default": []}
    elif isinstance(value, tuple):
        kind, text = type(value[0]), ",".join(map(str, value))
        own = {"type": lambda given: [kind(one) for one in given.split(",")], "default": text}
    elif isinstance(value, bool):
        own = {"action": "store_true"}
    else:
        own = {"type": type(value), "default": value}
    return field(default=value, metadata={"flag": flag, "words": own | {"help": about} | words})


@dataclass
class Options:
    """What is measured, and how: one option of the command line each."""

    device: torch.device = option(CPU, "default: a GPU if there is one", default=None)  # noqa: RUF009
    dtype: str = option("", "float16 (on a GPU), bfloat16, tf32, float32 or float64")
    engines: Sequence[str] = option(
        (), "engine, line, map builder, solver or installed package; default: ours", "--engine"
    )
    workloads: Sequence[str] = option(
        (), "file.npz with coords, scan@SIZE, or room_20k", "--workload"
    )
    clouds: Sequence[str] = option((), "file.npz:NAME@GRID, or room0@200k", "--cloud")
    models: Sequence[str] = option((), "network", "--model")
    modes: Sequence[str] = option((), "mode of a network or kind of a layer", "--mode")
    shapes: Sequence[str] = option((), "c_in:c_out:size[:stride]; several with commas", "--layer")
    kernels: Sequence[str] = option(("3:1", "5:1", "2:2", "3:2"), "of maps, as size:stride")
    products: Sequence[str] = option((), "table, pairs, ready or train, of maps", "--product")
    sizes: Sequence[float] = option((10.0, 50.0, 100.0, 500.0, 1000.0), "of generated scenes, k")
    kernel_sizes: Sequence[int] = option((3, 7, 13), "of spira_table4")
    rooms: int = option(10, "simulated rooms")
    width: float = option(1.0, "factor on the channels of networks")
    check: int = option(200_000, "sites that larger networks are checked on")
    repeats: int = option(20, "timed calls")
    budget: float = option(1.0, "longest time of one figure of a row [s]")
    limit: float = option(float("inf"), "seconds after which a figure begins no further case")
    memory: float | None = option(None, "memory of pointcnnpp_figJ [GB]", type=float)
    largest: float = option(400_000.0, "its largest cloud, in thousands of points")
    sites: str = option("floor", "of strided layers", choices=["floor", "reached"])
    gate: bool = option(False, "run the whole check of every engine first")

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        if not self.dtype:
            self.dtype = "float16" if self.device.type == "cuda" else "float32"

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self.began > self.limit

    @property
    def often(self) -> Repeats:
        return Repeats(self.repeats, 3, self.budget)


@dataclass(frozen=True, eq=False)
class Case:
    row: Row  # all that its rows say but the result
    # compares its result with the reference; what it returns is measured. Its error leaves the case
    # without times
    check: Callable[[], Any]
    # further keys of a row, and its result, for every row; `timed` unless given
    measure: Measure | None = None


Measure = Callable[[Any, Options], Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]]


def run(cases: Iterable[Case], options: Options) -> Iterator[Row]:
    """Check all cases, then time those that pass."""
    passed: list[tuple[Row, Any, Measure]] = []
    for case in cases:
        found = _checked(case, options)
        if isinstance(found, dict):
            yield found
        else:
            passed.append((case.row, found[0], case.measure or timed))
        del case, found  # nor their references
    for row, made, measured in passed:
        yield from _measured(row, made, measured, options)


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
    found = ((k, round(v, DIGITS) if isinstance(v, float) else v) for k, v in result.items())
    return {key: value for key, value in found if value is not None}


def same(call: Call) -> Prepare:
    return lambda: call


def timed(
    prepare: Prepare, options: Options, traced: bool = True
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    held: list[Call] = []

    def before() -> None:
        held[:] = [prepare()]

    yield (
        {},
        measure(lambda: held[0](), options.device, options.often, before=before, traced=traced),
    )


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
