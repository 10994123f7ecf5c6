"""Nine damaged clouds of thirty: the others are done, the nine are named, the exit code is 1."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from pcnn.cli.commands import app
from tests.cli.test_predict import saved
from tests.datasets.damaged_folder import CLASSES, damaged_folder

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
    done = CliRunner().invoke(app, [*map(str, words), "--no-ply"], env=WIDE)
    assert named(done.output, tmp_path / "in", "not labelled: ") == [p.name for p in damaged]
    assert done.exit_code == 1
    assert "21 clouds labelled" in done.output
    written = [path.name for path in (tmp_path / "out").iterdir()]
    assert len([name for name in written if not name.endswith("_confidence.npy")]) == 21
