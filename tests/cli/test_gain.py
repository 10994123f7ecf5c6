from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from pcnn.metrics.registration import PairResult, compare, protocol
from pcnn.metrics.registration.pair_table import write_pair_table
from tests.cli.invoking import invoke
from tests.metrics.registration.two_methods import runs

RULES = protocol("predator", "threedmatch")


def written(folder: Path, name: str, results: list[list[PairResult]]) -> list[str]:
    """Tables of runs, each at two numbers of samples."""
    return [
        str(write_pair_table(folder / f"{name}{at}.csv", {5000: run, 250: run}, {}, RULES))
        for at, run in enumerate(results)
    ]


gain = partial(invoke, "gain")


def test_every_file_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = runs(3, 0.8, 1), runs(2, 0.5, 2)
    over = written(tmp_path, "b", second)
    out, table, chart = (tmp_path / "new" / f"gain.{end}" for end in ("json", "md", "svg"))
    said = gain(
        *written(tmp_path, "a", first),
        *(word for path in over for word in ("--over", path)),
        *("--name", "native points", "--over-name", "voxels", "--draws", "100"),
        *("--out", str(out), "--markdown", str(table), "--chart", str(chart)),
    )
    assert "native points (3 runs) against voxels (2 runs), protocol predator" in said
    content = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert content["names"] == ["native points", "voxels"]
    assert content["number_of_runs"] == [3, 2]
    assert content["over"] == content["methods"][1]["tables"] == over
    found = compare(first, second, RULES, draws=100).figures
    for name in ("rr", "fmr", "ir", "rre", "rte"):
        figure = content["gain"]["250"][name]
        difference = found[name].difference
        assert figure["value"] == pytest.approx(difference.value, rel=1e-4, abs=1e-6)
        assert figure["pairs"] == difference.pairs
        for method, number in zip(content["methods"], (3, 2), strict=True):
            own = method["figures"]["5000"][name]
            assert len(own["values"]) == number
            assert own["mean"] == pytest.approx(sum(own["values"]) / number)
    assert table.read_text().startswith("## native points (3 runs) against voxels (2 runs)")
    assert "| 250 | RTE m ↓, both register |" in table.read_text()
    assert "</svg>" in chart.read_text()
    assert sorted(path.name for path in out.parent.iterdir()) == [
        "gain.json",
        "gain.md",
        "gain.svg",
    ]


def test_what_cannot_be_compared_ends_with_a_message_and_writes_nothing(tmp_path: Path) -> None:
    (one,) = written(tmp_path, "a", runs(1, 0.8, 1))
    (fewer,) = written(tmp_path, "b", runs(1, 0.8, 1, pairs=20))
    out = tmp_path / "gain.json"
    said = gain(one, "--over", fewer, "--out", str(out), code=2)
    assert "not of the same pairs: 30 and 20 of them, 10 in one alone" in said
    said = gain(one, "--over", one, "--out", str(out), "--chart", "gain.pdf", code=2)
    assert "gain.pdf: a chart is written as .png or .svg" in said
    said = gain(one, "--over", one, "--out", str(out), "--name", "B", code=2)
    assert "both methods are named 'B'" in said
    assert "none.csv" in gain(one, "--over", "none.csv", code=2)
    assert not out.exists()


def test_a_method_against_itself(tmp_path: Path) -> None:
    (one,) = written(tmp_path, "a", runs(1, 0.8, 1))
    said = gain(one, "--over", one)
    assert "A (1 run) against B (1 run)" in said
    assert "0.0 [0.0, 0.0] -" in said  # no difference, no effect
