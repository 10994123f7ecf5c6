"""An evaluation of a hand-made descriptor, from the command line to its files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.datasets.registration.scenes import write_benchmark
from tests.experiment.command import run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "set" / "scene"
    write_benchmark(folder)
    return folder.parent


def test_fpfh_from_the_command_line(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    done = run(
        "eval.py",
        "model=fpfh",
        "dataset=threedmatch",
        f"dataset.root={root}",
        "task.protocol=strict",
        "task.samples=[500,0]",
        "task.hypotheses=2000",
        "hydra.run.dir=out",
        cwd=tmp_path,
    )
    said = done.stdout + done.stderr
    for words in ("fpfh 0.05 m", "strict, changed", "RRE < 5 deg", "1 scenes, 0 of the 8"):
        assert words in said, words
    out = tmp_path / "out"
    written = json.loads((out / "metrics.json").read_text())
    assert written["source"] == "real"
    assert (written["protocol"], written["ground_truth"]) == ("strict, changed", "gt.log")
    assert (written["model"], written["task"], written["pairs"]) == ("fpfh", "registration", 3)
    assert 0 <= written["metrics"]["test/rr@500"] <= 1
    assert {"test/rr@all", "test/rr@500", "test/ir@500"} <= set(written["metrics"])
    with (out / "pairs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2
    good = [row for row in rows if row["samples"] == "500"]
    share = sum(row["success"] == "1" for row in good) / len(good)
    assert share == pytest.approx(written["metrics"]["test/rr@500"])
