"""`pcnn simulate kitti` passes its options on and ends politely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pcnn import simulate
from pcnn.cli.simulate import app

RUNNER = CliRunner()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, dict[str, Any]]]:
    """Record what the generator is asked for, instead of doing it."""
    made: list[tuple[Path, dict[str, Any]]] = []

    def record(root: Path, **options: Any) -> Path:
        made.append((root, options))
        return root

    monkeypatch.setattr(simulate, "simulate_kitti", record)
    return made


@pytest.mark.parametrize("folder", ["out", "--root out"])
def test_options_reach_the_generator(folder: str, calls: list[tuple[Path, dict[str, Any]]]) -> None:
    line = f"kitti {folder} --scans 100 --val-scans 20 --seed 7 --workers 3 --frame-stride 1"
    result = RUNNER.invoke(app, [*line.split(), "--no-progress"])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "out"
    assert calls == [
        (
            Path("out"),
            {
                "seed": 7,
                "train_scans": 100,
                "val_scans": 20,
                "workers": 3,
                "progress": False,
                "frame_stride": 1,
            },
        )
    ]


def test_the_folder_is_given_once(calls: list[tuple[Path, dict[str, Any]]]) -> None:
    result = RUNNER.invoke(app, ["kitti", "one", "--root", "two"])
    assert result.exit_code == 2
    assert "not one and --root two" in " ".join(result.output.replace("│", " ").split())
    assert calls == []


def test_the_default_folder_names_seed_and_version(
    calls: list[tuple[Path, dict[str, Any]]],
) -> None:
    assert RUNNER.invoke(app, ["kitti", "--seed", "2"]).exit_code == 0
    assert calls[0][0] == Path("data") / "simulated" / f"kitti-2-{simulate.VERSION}"
    assert (calls[0][1]["train_scans"], calls[0][1]["val_scans"]) == (40, 8)


def test_a_folder_that_holds_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    result = RUNNER.invoke(app, ["kitti", "--root", str(tmp_path), "--no-progress"])
    assert result.exit_code == 2
    assert "not a simulated set" in " ".join(result.output.replace("│", " ").split())
    assert (tmp_path / "mine.txt").read_text() == "keep"
