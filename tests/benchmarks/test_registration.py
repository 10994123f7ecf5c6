"""Pairs of clouds by other code: a line a pair, its errors by the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.registration import main
from pcnn.datasets.registration.gt_files import scene_pairs, write_scene
from tests.datasets.registration.scenes import write_fragments


def test_a_method_is_judged_by_the_pairs_that_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "indoor/test/scene"
    clouds, poses = write_fragments(folder)
    write_scene(folder, scene_pairs(clouds, poses, folder.name, overlaps=(0.0, 1.0)), len(clouds))
    (tmp_path / "mine.py").write_text("def register(*_): return [[*map(float, range(4))]] * 4")
    monkeypatch.syspath_prepend(tmp_path)
    main("threedmatch", "mine", "absent_package", f"root={tmp_path}")
    about, *rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert about["pairs"] == len(rows) > 0
    for row in rows:
        assert row["source"] != row["target"] + 1
        assert row["rmse"] > 0.2
