"""`pcnn report`: what runs left in their folders, on one page."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imsave

from pcnn.experiment.run_report.recorded import RecordedRun, read_series
from pcnn.visualize.view import View, ViewedCloud
from tests.browser import Browser, installed
from tests.cli.invoking import invoke
from tests.visualize.view.test_page import Elements

EVIL = "<img src=x onerror=alert(1)>"


def a_run(folder: Path, seed: int = 0, finished: bool = True, **more: Any) -> Path:
    """A folder as train.py leaves it."""
    config = {"seed": seed, "train": True, "task": {"name": "segmentation", **more}, "tags": []}
    (folder / "csv" / "version_0").mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config))
    lines = [f"{n},{3 / (n + 1)},,{1000 + n}" for n in range(0, 60, 10)]
    lines += ["29,,1.5,", "59,,1.7,", "60,,1.5,"]  # the last is of the best checkpoint
    (folder / "csv" / "version_0" / "metrics.csv").write_text(
        "\n".join(["step,train/loss,val/loss,memory/peak_mib", *lines]) + "\n"
    )
    imsave(folder / "predictions.png", np.zeros((4, 4, 3)))
    rng = np.random.default_rng(seed)
    labels = {"prediction": rng.integers(0, 2, 3000)}
    cloud = ViewedCloud("a.bin", rng.normal(size=(3000, 3)), labels=labels)
    View([cloud], ("road", "car")).write(folder / "predictions.html")
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


def test_runs_stand_side_by_side_and_differences_are_marked(tmp_path: Path) -> None:
    first = a_run(tmp_path / "a", lr=0.1)
    second = a_run(tmp_path / "b", seed=1, finished=False, note=EVIL)
    page = tmp_path / "r.html"
    with (first / "predictions.html").open("a") as file:
        file.write(
            f"<script>{EVIL}</script><script type='application/octet-stream'>{EVIL}</script>"
        )
    (second / "other.html").write_text(EVIL)  # no view
    assert "2 runs" in invoke("report", first, second, "--out", page)
    text = page.read_text()
    assert "SIMULATED DATA: a" in text
    assert "not finished, 60 steps so far" in text
    assert "mean IoU over the classes that occur" in text
    assert RecordedRun.read(first).series["val/loss"] == [(29, 1.5), (59, 1.7)]
    assert "0.6188" in text
    assert "<td>69.2</td>" in text, "IoU of roads: 90 of 130"
    differing = text[text.index("<h3>What differs") : text.index("<summary>all values")]
    names = re.findall(r"<tr class=\"differs\"><th>([^<]*)</th>", differing)
    assert names == ["seed", "task.lr", "task.note"]
    found = Elements(text)
    titles = [t for a, t in found.named("text") if a.get("class") == "title"]
    assert titles == ["loss", "memory/peak_mib"]
    assert not found.named("img")[0][0].get("onerror")
    assert {a["alt"] for a, _ in found.named("img")} == {"a: predictions.png", "b: predictions.png"}
    assert EVIL not in text
    assert EVIL.replace("<", "&lt;").replace(">", "&gt;") in text
    assert not any("style" in attributes for _, attributes in found.tags)
    held = {a.get("id"): t for a, t in found.named("script")}
    assert "view-2" not in held
    for number in range(2):
        view = Elements(base64.b64decode(held[f"view-{number}"]).decode())
        assert all(set(a) <= {"type", "id", "data-kind"} and "type" in a for _, a in view.tags)
        assert not any(EVIL in data for data in view.texts)
    invoke("report", first, "--out", page, "--no-views")
    assert page.stat().st_size < 100_000


def test_a_resumed_run_counts_its_later_steps_once(tmp_path: Path) -> None:
    paths = []
    for version, steps in ((0, (0, 10, 20)), (1, (20, 30))):
        path = tmp_path / f"version_{version}" / "metrics.csv"
        path.parent.mkdir()
        rows = [f"{step},{version}.5,nan" for step in steps]
        path.write_text("\n".join(["step,train/loss,val/loss", *rows]) + "\n")
        paths.append(path)
    assert read_series(paths) == {"train/loss": [(0, 0.5), (10, 0.5), (20, 1.5), (30, 1.5)]}


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    for number in range(2):
        a_run(tmp_path / "sweep" / str(number))
    assert "2 runs" in invoke("report", tmp_path / "sweep", "--out", tmp_path / "r.html")
    assert "Every value is the same" in (tmp_path / "r.html").read_text()


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    out = ("--out", tmp_path / "r.html")
    (tmp_path / "empty").mkdir()
    said = invoke("report", tmp_path / "empty", *out, code=2)
    assert "no run of train.py or eval.py (config.yaml is missing)" in said
    assert "no such folder" in invoke("report", tmp_path / "absent", *out, code=2)
    damaged = a_run(tmp_path / "damaged")
    table = damaged / "csv" / "version_0" / "metrics.csv"
    table.write_text("step,train/loss\n0,low\n")
    assert str(table) in invoke("report", damaged, *out, code=2)
    table.unlink()
    (damaged / "metrics.json").write_text("{")
    assert "damaged" in invoke("report", damaged, *out, code=2)
    (damaged / "metrics.json").unlink()
    assert "no curves" in invoke("report", damaged, *out)


@pytest.mark.skipif(installed() is None, reason="no Chromium (make browser)")
def test_the_report_shows_a_view_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    invoke("report", a_run(tmp_path / "a"), "--out", page)
    browser = Browser(tmp_path / "profile")
    try:
        browser.size(1200, 800)
        browser.open(page)
        browser.value("document.querySelector('button[data-view]').click()")
        browser.value("document.querySelector('iframe').scrollIntoView()")
        end = time.monotonic() + 30  # a busy machine draws late
        while (np.ptp(browser.pixels(), axis=2) > 60).mean() < 0.01:
            assert time.monotonic() < end, "no classes in colours"
        assert browser.complaints() == []
        browser.size(390, 800, phone=True)
        assert browser.value("document.documentElement.scrollWidth") == 390
    finally:
        browser.close()
