"""`pcnn simulate fragments` and `rooms` pass their options on and end politely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pcnn.cli.simulate import app
from pcnn.simulate import interiors

RUNNER = CliRunner()
Calls = list[tuple[Path, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Record what the generators are asked for, instead of doing it."""
    made: Calls = []

    def record(root: Path, **options: Any) -> Path:
        made.append((root, options))
        return root

    monkeypatch.setattr(interiors, "simulate_fragments", record)
    monkeypatch.setattr(interiors, "simulate_rooms", record)
    return made


def test_options_reach_the_fragments(calls: Calls) -> None:
    line = (
        "fragments out --scenes 5 --val-scenes 1 --test-scenes 3 --fragments 40 --fusion means "
        "--seed 7 --workers 3 --no-progress"
    )
    result = RUNNER.invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "out"
    asked = {"seed": 7, "train_scenes": 5, "val_scenes": 1, "test_scenes": 3, "fragments": 40}
    assert calls == [
        (Path("out"), asked | {"fusion": "means", "workers": 3, "progress": False}),
    ]


def test_options_reach_the_rooms(calls: Calls) -> None:
    line = "rooms out --rooms 9 --spacing 0.01 --layout arrays --seed 4 --workers 2"
    result = RUNNER.invoke(app, line.split())
    assert result.exit_code == 0, result.output
    asked = {"seed": 4, "rooms": 9, "spacing": 0.01, "layout": "arrays"}
    assert calls == [(Path("out"), asked | {"workers": 2, "progress": True})]


@pytest.mark.parametrize(("command", "name"), [("fragments", "threedmatch"), ("rooms", "s3dis")])
def test_a_set_has_its_default_place(calls: Calls, command: str, name: str) -> None:
    assert RUNNER.invoke(app, [command, "--seed", "3"]).exit_code == 0
    assert calls[0][0] == Path("data/simulated") / f"{name}-3-{interiors.VERSION}"


def test_what_is_in_the_way_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"meow")
    result = RUNNER.invoke(app, ["rooms", str(tmp_path / "photos")])
    assert result.exit_code == 2
    assert "not a simulated set" in " ".join(result.output.replace("│", " ").split())
