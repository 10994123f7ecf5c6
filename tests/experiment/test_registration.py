"""An evaluation of a hand-made descriptor, from the command line to its files."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from pcnn import console
from pcnn.experiment.registration import evaluate_untrained
from pcnn.experiment.run_folder import PAIRS_SO_FAR
from pcnn.registration import evaluation
from tests.datasets.registration.scenes import write_benchmark
from tests.experiment.command import run
from tests.experiment.sweep import composed


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


@pytest.mark.parametrize("again", ["one", "two"])
def test_the_same_command_goes_on_where_it_was_interrupted(
    again: str,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("open3d")
    options = f"dataset.root={root}", "task.samples=[500]", "task.hypotheses=500"
    options = (*options, "model=fpfh", "dataset=threedmatch", "task.protocol=strict")
    cfg = composed(*options, name="eval")
    for name in ("FIRST", "EVERY"):
        monkeypatch.setattr(console, name, 0.05)
    monkeypatch.setattr(evaluation, "BATCH", 1)
    judged, count = evaluation.judged, 0

    def interrupted(*given: Any) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            time.sleep(0.2)
            raise KeyboardInterrupt
        return judged(*given)

    monkeypatch.setattr(evaluation, "judged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate_untrained(cfg, tmp_path / "one")
    said = capsys.readouterr().out
    assert re.search(r"registering: 1 of 3, recall \d+\.0 %, 0:\d\d left", said)
    assert (tmp_path / "one" / PAIRS_SO_FAR).exists()
    evaluate_untrained(cfg, tmp_path / again)
    assert "1 pair was measured before" in " ".join(capsys.readouterr().out.split())
    assert count == 4
    cfg.seed = 5  # another evaluation
    evaluate_untrained(cfg, tmp_path / "three")
    assert count == 7
    assert not list(tmp_path.rglob(PAIRS_SO_FAR))
