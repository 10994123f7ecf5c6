"""The one runner: nothing is timed that has not passed its check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from pcnn.bench import run as run_file
from pcnn.bench.harness import same
from pcnn.bench.rows import Row
from pcnn.bench.run import Case, middle_trace, parts, run
from pcnn.bench.trace import KernelTime, Trace
from pcnn.bench.verify import CheckFailed, Proof
from tests.bench.settings import left_out, of_layers

ROW = Row("layer", "scene", "engine", params={"t": 1})
SETTING = of_layers()


def passes(row: Row = ROW, proof: Row | None = None, **other: Any) -> Case:
    return Case(row, lambda: (Proof(proof or row), lambda: same(lambda: None)), **other)


def fails(error: Exception) -> Any:
    def raises(*_: object) -> Any:
        raise error

    return raises


def test_what_passes_is_timed_and_recorded() -> None:
    (row,) = run([passes()], SETTING)
    assert row.checked
    assert row.params == {"t": 1}
    assert 0 <= row.min_ms <= row.wall_ms <= row.p90_ms
    assert (row.cache, row.run) == ("warm", None)


def test_a_failed_check_becomes_a_row_without_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "measure", lambda *args, **_: pytest.fail("timed"))
    for error in (CheckFailed("out is off"), KeyError("no blocks")):
        (row,) = run([Case(ROW, fails(error))], SETTING)
        assert (row.checked, row.wall_ms) == (False, None)
        assert row.params == {"t": 1, "left_out": f"{type(error).__name__}: {error}"}


def test_a_proof_of_another_configuration_is_refused() -> None:
    for other in (
        replace(ROW, c_in=4),
        replace(ROW, engine="spira"),
        replace(ROW, what="train"),
        replace(ROW, params={"t": 2}),
    ):
        (row,) = run([passes(proof=other)], SETTING)
        assert "check the configuration that is timed" in left_out([row])[0]
        assert row.wall_ms is None


def test_runs_take_turns_among_the_cases_after_all_checks() -> None:
    order: list[str] = []

    def case(name: str) -> Case:
        def check() -> Any:
            order.append(f"check {name}")
            return Proof(row), lambda: name

        def measure(made: str, setting: object, count: bool) -> Iterator[dict[str, Any]]:
            order.append(f"time {made} {count}")
            yield {"wall_ms": 1.0}

        row = replace(ROW, engine=name)
        return Case(row, check, measure)

    rows = list(run(map(case, "ab"), SETTING.having(runs=2, count=True)))
    assert [(row.run, row.engine) for row in rows] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    times = ["time a True", "time b True", "time a False", "time b False"]
    assert order == ["check a", "check b", *times], "launches are counted once"


def test_references_are_given_back_before_anything_is_timed() -> None:
    alive: list[str] = []

    class Reference:
        def __init__(self) -> None:
            alive.append("reference")

        def __del__(self) -> None:
            alive.clear()

    def cases() -> Iterator[Case]:
        reference = Reference()

        def check() -> Any:
            assert reference
            return Proof(ROW), lambda: same(lambda: None)

        yield Case(ROW, check, lambda made, setting, count: [{"params": {"alive": len(alive)}}])

    (row,) = run(cases(), SETTING)
    assert row.params == {"t": 1, "alive": 0}


def test_an_error_at_the_full_size_leaves_the_other_rows() -> None:
    bad = passes(measure=fails(torch.OutOfMemoryError("none left")))
    first, second = run([bad, passes()], SETTING)
    assert "none left" in left_out([first])[0]
    assert second.checked


def test_parts_are_rows_of_their_own() -> None:
    def split(timeline: object) -> dict[str, float]:
        return {"gather": 1.23456, "rest": 0.5}

    (row,) = run([passes(measure=parts(split, "part", ["gather"]))], SETTING)
    assert (row.gpu_busy_ms, row.params) == (1.2346, {"t": 1, "part": "gather"})
    nothing = parts(lambda _: {"gather": 0.0})
    assert list(run([passes(measure=nothing)], SETTING)) == [], "the profiler tells nothing"
    traces = [Trace((KernelTime("a", spent, 1),)) for spent in (5.0, 1.0, 3.0)]
    assert middle_trace(traces).busy_ms == 0.003


def test_words_of_options_become_objects_and_mistakes_are_named() -> None:
    assert [shape.kernel.size[0] for shape in of_layers(layers=["4:4:3,4:4:5:2"]).shapes] == [3, 5]
    for fields, message in (
        ({"layers": ["16"]}, "must be c_in:c_out:size"),
        ({"layers": ["0:1:3"]}, "must be c_in:c_out:size"),
        ({"what": ["nap"]}, "--what nap: must be one of layer, train"),
        ({"engine": ["nonsense"]}, "--engine: no engine named"),
        ({"only_peers": True}, "--only-peers needs --peers"),
    ):
        with pytest.raises(ValueError, match=message):
            of_layers(**fields).resolve()
    of_layers().resolve()
