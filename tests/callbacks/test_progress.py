"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcnn.callbacks import TrainingProgress, progress
from tests.callbacks.segmenting import Clouds, Segmenting
from tests.callbacks.tiny import trainer_for


def steps(
    folder: Path, bar: TrainingProgress, said: pytest.CaptureFixture[str], **options: Any
) -> list[str]:
    """The numbers of the steps that had a line."""
    given = {"max_steps": 3, "enable_checkpointing": False, "enable_progress_bar": True, **options}
    trainer_for(folder, [bar], **given).fit(Segmenting(), Clouds())
    lines = said.readouterr().out.splitlines()
    return [line.split()[1] for line in lines if line.startswith("step ")]


def test_one_bar_on_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bar = TrainingProgress(every_n_steps=10, terminal=True)
    trainer = trainer_for(
        tmp_path, [bar], max_steps=12, enable_checkpointing=False, enable_progress_bar=True
    )
    trainer.fit(Segmenting(), Clouds())
    text = capsys.readouterr().out
    assert "12/12" in text
    assert "mIoU 0.25" in text
    assert bar._bars is None


def test_the_bar_is_closed_when_training_fails(tmp_path: Path) -> None:
    class Failing(Segmenting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            raise RuntimeError("stop")

    bar = TrainingProgress(terminal=True)
    options = {"enable_progress_bar": True, "enable_checkpointing": False, "max_steps": 2}
    with pytest.raises(RuntimeError, match="stop"):
        trainer_for(tmp_path, [bar], **options).fit(Failing(), Clouds())
    assert bar._bars is None


def test_accumulated_slow_and_other_ranks_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = TrainingProgress(every_n_steps=1)
    assert steps(tmp_path, every, capsys, accumulate_grad_batches=3) == ["1/3", "2/3", "3/3"]
    silent = TrainingProgress(every_n_steps=1)
    silent.disable()
    assert not steps(tmp_path, silent, capsys)
    monkeypatch.setattr(progress, "QUIET", 0.0)
    assert steps(tmp_path, TrainingProgress(every_n_steps=50), capsys)[-2:] == ["2/3", "3/3"]
