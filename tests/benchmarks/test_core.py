"""Nothing is timed that has not passed its check; rows keep all that was measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import latency, layers, maps, networks, report, run
from benchmarks.check import CheckFailed
from benchmarks.rows import identity, merged, read, write
from benchmarks.run import Case, same
from pcnn.geometry import Kernel
from pcnn.ops.engine import ENGINES, resolve
from tests.benchmarks.small import SCENES, left_out, options
from tests.ops.test_faulty import Faulty, FaultyBuilder

ROW = {"figure": "f", "what": "layer", "workload": "scene", "engine": "auto", "t": 1}


def passes(row: dict[str, Any] = ROW, **other: Any) -> Case:
    return Case(row, lambda: same(lambda: None), **other)


def raises(error: Exception) -> Any:
    def fails(*_: object) -> Any:
        raise error

    return fails


def test_what_passes_is_timed_and_what_fails_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = run.run([passes()], options())
    assert {**row, "result": {}} == {**ROW, "result": {}}
    assert 0 <= row["result"]["min_ms"] <= row["result"]["wall_ms"] <= row["result"]["p90_ms"]
    monkeypatch.setattr(run, "measure", lambda *args, **_: pytest.fail("timed"))
    for error in (CheckFailed("out is off"), KeyError("no blocks")):
        (row,) = run.run([Case(ROW, raises(error))], options())
        assert row == {**ROW, "result": {"left_out": f"{type(error).__name__}: {error}"}}


def test_an_error_at_the_full_size_or_the_end_of_time_leaves_the_other_rows() -> None:
    bad = passes(measure=raises(torch.OutOfMemoryError("none left")))
    first, second = run.run([bad, passes()], options())
    assert "none left" in left_out([first])[0]
    assert "wall_ms" in second["result"]
    assert left_out(list(run.run([passes()], options(limit=-1.0)))) == ["out of time"]


@pytest.mark.parametrize(
    "other",
    [
        *({"what": "train"}, {"product": "pairs"}, {"stride": 2}, {"t": 2}, {"k": 5}),
        {"machine": {"device": "b"}},
        {"machine": {"device": "a", "revision": "1", "clean": False, "changes": "other"}},
    ],
    ids=str,
)
def test_rows_replace_only_those_of_the_very_same_thing(
    other: dict[str, Any], tmp_path: Path
) -> None:
    on = {"device": "a", "revision": "1", "clean": False, "changes": "one", "date": "today"}
    old = {**ROW, "machine": on, "result": {"wall_ms": 1.0}}
    again = {**old, "machine": {**on, "date": "tomorrow"}, "result": {"wall_ms": 2.0}}
    assert merged([old], [again]) == [again]
    new = {**old, **other}
    write(tmp_path / "r.json", merged([old], [new]))
    assert sorted(map(identity, read(tmp_path / "r.json"))) == sorted(map(identity, [old, new]))


@pytest.mark.parametrize("flaw", ["mirrored", "last_row"])
def test_a_wrong_engine_gets_no_time(flaw: str, wrong_engine: Any) -> None:
    given = wrong_engine(flaw)
    rows = list(layers.layer_rows(options(**given, modes=["train"]), "layers"))
    rows += networks.network_rows(options(**given, modes=["train"]), "networks")
    assert [reason.split(":")[0] for reason in left_out(rows)] == 2 * ["CheckFailed"]


def test_the_gate_finds_what_is_right_here_and_wrong_elsewhere(wrong_engine: Any) -> None:
    given = wrong_engine("small")
    assert left_out(list(layers.layer_rows(options(**given, modes=["layer"]), "layers"))) == []
    rows = list(layers.layer_rows(options(**given, modes=["layer"], gate=True), "layers"))
    assert left_out(rows)[0].startswith("Nonconforming")


@pytest.fixture
def wrong_engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(flaw: str) -> dict[str, Any]:
        wrong = replace(resolve("reference"), name="wrong", dataflow=Faulty(flaw=flaw))
        monkeypatch.setitem(ENGINES, "wrong", wrong)
        for script in (layers, networks):
            monkeypatch.setattr(script, "scenes", lambda *_: SCENES)
        return {"engines": ["wrong"], "models": ["sparse_resnet"], "shapes": ["4:6:3"]}

    return made


def test_a_wrong_map_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    place = layers.place_of(SCENES[0], Kernel.of(2, 2), options())
    case = maps.map_case(options(), place, FaultyBuilder("even"), "table", "f", B=1)
    (row,) = run.run([case], options())
    assert left_out([row])[0].startswith("CheckFailed")
    assert row["B"] == 1


def test_a_graph_that_answers_otherwise_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = latency.Gate(options(), "sparse_resnet", SCENES[0].cloud())
    runner = gate.runner(latency.Line("eager", resolve("auto")))
    assert gate.agreement(runner) == "bitwise"
    found = runner.results(gate.scan)
    off = {name: 1.5 * tensor for name, tensor in found.items()}
    with pytest.raises(CheckFailed, match="graph and eager differ"):
        gate.agreement(SimpleNamespace(results=lambda _: off))  # type: ignore[arg-type]


def test_results_go_to_a_new_file_and_pages_are_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["layers", "--layer", "4:6:3", "--workload", "surface_0.2k", "--device", "cpu"]
    words += ["--mode", "layer", "--repeats", "1", "--budget", "0", "--dtype", "float32"]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        assert command.main() == 0
    files = sorted((tmp_path / "benchmark-results").glob("*.json"))
    assert [file.name for file in files] == ["layers-cpu-2.json", "layers-cpu.json"]
    (row,) = read(files[0])
    assert (row["engine"], row["what"], row["c_in"]) == ("auto", "layer", 4)
    assert {"device", "torch", "revision", "clean"} <= set(row["machine"])
    on = {**row["machine"], "device": "NVIDIA H200"}
    claim = {"figure": "minuet_fig12", "what": "network", "model": "minkunet", "machine": on}
    claim |= {"workload": "scan", "n": 7, "dtype": "float16", "mode": "infer"}
    times = {"torchsparse": 3.0, "minuet": 2.0}
    rows = [{**claim, "engine": e, "result": {"wall_ms": t}} for e, t in times.items()]
    rows += [{**row, "figure": "networks"} for row in rows]
    write(tmp_path / "results" / "r.json", rows)
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- table: speed -->\n<!-- end of table -->\n")
    report.write_pages(tmp_path / "results", tmp_path / "docs")
    line = (tmp_path / "README.md").read_text().splitlines()[3]
    assert line.split(" | ")[:2] == ["| minkunet", "scan"]
    assert "**2.00**" in line
    page = (tmp_path / "docs" / "results" / "papers.md").read_text()
    assert "torchsparse / minuet: 1.50× by the wall | agrees" in page
