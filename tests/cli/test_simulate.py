"""`pcnn simulate` passes its options on and ends politely."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pcnn.simulate.simulator import Simulator
from tests.cli.invoking import invoke

simulate = partial(invoke, "simulate")
Calls = list[tuple[Path, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record the requests to the simulators in place of doing them."""
    made: Calls = []

    def record(self: Simulator, root: Path, **options: Any) -> Path:
        made.append((root, options))
        return root

    monkeypatch.setattr(Simulator, "write", record)
    return made


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (
            "kitti out --scans 100 --val-scans 20 --seed 7 --workers 3 --frame-stride 1",
            {"seed": 7, "train_scans": 100, "val_scans": 20, "workers": 3, "frame_stride": 1},
        ),
        (
            "fragments out --scenes 5 --val-scenes 1 --test-scenes 3 --fragments 40",
            {"seed": 0, "train_scenes": 5, "val_scenes": 1, "test_scenes": 3, "fragments": 40,
             "workers": None},
        ),
        (
            "rooms out --rooms 9 --spacing 0.01 --seed 4 --workers 2",
            {"seed": 4, "rooms": 9, "spacing": 0.01, "workers": 2},
        ),
    ],
)  # fmt: skip
def test_options_reach_the_simulator(calls: Calls, line: str, asked: dict[str, Any]) -> None:
    assert simulate(*line.split(), "--no-progress") == "out"
    assert calls == [(Path("out"), asked | {"progress": False})]


@pytest.mark.parametrize("command", ["kitti", "rooms"])
def test_a_folder_that_holds_something_else_is_named(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert "not a simulated set" in simulate(command, tmp_path, "--no-progress", code=2)
    assert (tmp_path / "mine.txt").read_text() == "keep"
