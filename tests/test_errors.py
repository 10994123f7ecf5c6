"""A mistake in a command line ends in a short message and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import train
from pcnn.programs.command_line import short_errors

#: Command lines, and a word that names what is wrong.
CASES = {
    "engine=spira trainer=cpu": "engine",
    "dataset=folder dataset.root=.": "class_names",
    "experiment=nonsense": "semantic_kitti_minkunet",
    "trainer.max_stesp=3": "max_stesp",
    "trainer.max_steps==3": "trainer.max_steps==3",
    "ckpt_path=nowhere.ckpt": "ckpt_path",
    "dataset.root=kitti dataset.train_sequences=[0]": "kitti/sequences",
}


@pytest.mark.parametrize("command", CASES)
def test_short_message(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "kitti" / "sequences" / "00" / "velodyne").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", *command.split()])
    with pytest.raises(SystemExit) as stopped, short_errors():
        train.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert 1 <= len(said.splitlines()) <= 3, said
    assert CASES[command] in said
    assert not list(tmp_path.glob("logs/*/*")), "a run folder was left behind"


def test_programming_errors_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(cfg: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setattr("pcnn.experiment.run.prepare", lambda *arguments: broken(None))
    with pytest.raises(ZeroDivisionError), short_errors():
        train.main()
