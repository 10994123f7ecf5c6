"""`pcnn report`: what a run left in its folder, on one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.invoking import invoke
from tests.visualize.view.test_page import Elements

EVIL = "<img src=x onerror=alert(1)>"


def a_run(folder: Path, finished: bool = True, **more: Any) -> Path:
    """A folder as train.py leaves it."""
    config = {"seed": 0, "train": True, "task": {"name": "segmentation", **more}, "tags": []}
    config["data"] = {"source": "simulated"}
    (folder / "csv" / "version_0").mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    lines = [f"{n},{3 / (n + 1)},,{1000 + n}" for n in range(0, 60, 10)]
    (folder / "csv" / "version_0" / "metrics.csv").write_text(
        "\n".join(["step,train/loss,val/loss,memory/peak_mib", *lines, "29,,1.5,", "59,,1.7,"])
    )
    if finished:
        counts = {"class_names": ["road", "car"], "counts": {"val": [[90, 10, 0], [30, 60, 10]]}}
        (folder / "confusion.json").write_text(json.dumps(counts))
        metrics = {
            "source": "simulated",
            "metrics": {"val/loss": 1.5, "val/miou_present": 0.6188, "val/iou/road": 0.69},
            "steps": 60,
            "config_sha256": "0",
            "start": {"first_step": 2.5},
        }
        (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_a_page_holds_figures_curves_confusion_and_configuration(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    for finished in (True, False):
        folder = a_run(tmp_path / f"a$x{finished}", finished=finished, note=EVIL)
        invoke("report", folder, "--out", page)
        text = page.read_text()
        assert "SIMULATED DATA" in text
        assert ("not finished" in text) != finished
        assert EVIL not in text
        assert EVIL.replace("<", "&lt;").replace(">", "&gt;") in text
        found = Elements(text)
        cells = {cell for _, cell in found.named("td")}
        assert ({"0.6188", "0.69"} <= cells) == finished
        images = [one for one, _ in found.named("img")]
        shown = {one["alt"] for one in images}
        assert {"train/loss", "val/loss"} <= shown
        assert ("confusion, val" in shown) == finished
        assert all(one["src"].startswith("data:image/") for one in images)
        assert not any(name in ("script", "iframe", "link") for name, _ in found.tags)


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "r.html")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        assert name in invoke("report", tmp_path / name, *out, code=2)
    damaged = a_run(tmp_path / "damaged")
    table = damaged / "csv" / "version_0" / "metrics.csv"
    for content in ("step,train/loss\n0,low\n", "train/loss\n1\n"):
        table.write_text(content)
        assert str(table) in invoke("report", damaged, *out, code=2)
    table.unlink()
    (damaged / "metrics.json").write_text("{")
    assert "metrics.json" in invoke("report", damaged, *out, code=2)
    (damaged / "metrics.json").unlink()
    assert "no curves" in invoke("report", damaged, *out)
