"""Thirty damaged clouds of a hundred: seventy are done, thirty are named, the exit code is 1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pcnn.cli.commands import app
from tests.cli.test_predict import saved
from tests.datamodules.modules import folder_module
from tests.datasets.damaged_folder import CLASSES, CLOUDS, damaged_folder

WIDE = {"COLUMNS": "1000"}


def named(text: str, folder: Path, mark: str) -> list[str]:
    """Files of a folder in the lines that begin with a mark; the last of a line broke the rule."""
    found = re.compile(re.escape(f"{folder}/") + r"(\w+\.\w+):")
    return sorted(found.findall(line)[-1] for line in text.splitlines() if line.startswith(mark))


def test_predict(tmp_path: Path) -> None:
    damaged = damaged_folder(tmp_path / "in")
    own = {"classes": CLASSES, "class_names": None, "crop": None, "channels": ["intensity"]}
    saved(tmp_path / "best.ckpt", "folder", **own)
    words = ["predict", tmp_path / "best.ckpt", tmp_path / "in", "--out", tmp_path / "out"]
    done = CliRunner().invoke(app, [*map(str, words), "--no-ply", "--no-picture"], env=WIDE)
    assert named(done.output, tmp_path / "in", "not labelled: ") == [p.name for p in damaged]
    assert done.exit_code == 1
    assert "70 clouds labelled" in done.output
    written = [path.name for path in (tmp_path / "out").iterdir()]
    assert len([name for name in written if not name.endswith("_confidence.npy")]) == 70


def test_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    damaged = damaged_folder(tmp_path / "in", labels=True)
    data = folder_module(
        str(tmp_path / "in"),
        voxel_size=0.5,
        classes=CLASSES,
        channels=["intensity"],
        val_fraction=0.0,
        num_workers=0,
        on_error="skip",
    )
    names = [name for batch in data.train_dataloader() for name in batch.names]
    assert len(names) == CLOUDS
    assert len(set(names)) == 70
    said = "\n".join(caplog.messages)
    assert named(said, tmp_path / "in", "a sample is left out") == [p.name for p in damaged]
