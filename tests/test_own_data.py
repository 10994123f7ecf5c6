"""The commands of docs/own_data.md work, as far as they need no training."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.experiment.check import checked
from tests.experiment.sweep import composed

REPOSITORY = Path(__file__).parents[1]
PAGE = (REPOSITORY / "docs" / "own_data.md").read_text()


def block(language: str) -> str:
    """The page's first block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def command(start: str) -> list[str]:
    """Words of the first command that begins so, after these."""
    line = PAGE.replace("\\\n", " ")
    return line[line.index(f"\n{start}") + 1 :].split("\n")[0][len(start) :].split()


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "make_tiles.py").write_text(block("python"))
    (tmp_path / "classes.yaml").write_text(block("yaml"))
    subprocess.run([sys.executable, "make_tiles.py"], cwd=tmp_path, check=True, timeout=120)
    monkeypatch.chdir(tmp_path)
    made = CliRunner().invoke(app, ["preprocess", *command("pcnn preprocess"), "--workers", "0"])
    assert made.exit_code == 0, made.output
    assert "10 clouds: 8 made, 2 read without problems" in made.output
    looked = CliRunner().invoke(app, ["stats", *command("pcnn stats"), "--no-progress"])
    assert looked.exit_code == 0, looked.output
    words = [w for w in command("python train.py") if not w.startswith("hydra.")]
    cfg = checked(composed(*words))
    assert cfg.dataset.classes == "classes.yaml"
