"""An evaluation of a hand-made descriptor, from the command line to its files."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from pcnn.errors import ConfigError
from pcnn.experiment import registration
from pcnn.experiment.registration import evaluate_untrained
from pcnn.experiment.run_folder import SO_FAR
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


def test_the_same_command_goes_on_where_it_was_interrupted(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("open3d")
    options = f"dataset.root={root}", "task.samples=[500,0]", "task.protocol=strict"
    options = (*options, "task.hypotheses=500", "model=fpfh", "dataset=threedmatch")
    cfg = composed(*options, name="eval")
    monkeypatch.setattr(registration, "EVERY", 0.0)
    monkeypatch.setattr(evaluation, "BATCH", 1)
    judged, asked = evaluation.judged, list[str]()

    def rows(name: str) -> list[list[str]]:
        with (tmp_path / name / "pairs.csv").open() as file:
            return [row[:-1] for row in csv.reader(file)]  # but the time

    def counting(pair: Any, *given: Any) -> Any:
        asked.append(str(pair))
        if stop == len(asked):
            raise KeyboardInterrupt
        return judged(pair, *given)

    monkeypatch.setattr(evaluation, "judged", counting)
    stop = 0
    evaluate_untrained(cfg, tmp_path / "whole")
    for again in ("one", "two"):  # in the same folder, and in one beside it
        asked.clear()
        stop = 4  # in the second pair, which is measured at two numbers of samples
        with pytest.raises(KeyboardInterrupt):
            evaluate_untrained(cfg, tmp_path / "one")
        said = capsys.readouterr().out
        assert re.search(r"registering: 1 of 3, recall so far \d+\.0 %, 0:00:\d\d left", said)
        kept = tmp_path / "one" / SO_FAR
        kept.write_text(kept.read_text() + "[[500, 1, ")  # as of a process that was killed
        evaluate_untrained(cfg, tmp_path / again)
        assert "1 pair measured before" in " ".join(capsys.readouterr().out.split())
        assert len(asked) == 8  # two of them twice
        assert rows(again) == rows("whole")
        assert not list(tmp_path.rglob(SO_FAR))
        (tmp_path / "one" / "config.yaml").unlink()
    stop = len(asked) + 4
    with pytest.raises(KeyboardInterrupt):
        evaluate_untrained(cfg, tmp_path / "one")
    cfg.seed = 5  # another evaluation
    evaluate_untrained(cfg, tmp_path / "three")
    assert len(asked) == 8 + 4 + 6
    cfg.seed = 0
    kept.write_text(kept.read_text() + "[[500, 1]]\n")
    with pytest.raises(ConfigError, match=SO_FAR):
        evaluate_untrained(cfg, tmp_path / "four")
