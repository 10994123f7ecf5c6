"""Bars on a terminal, lines elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcnn.callbacks import TrainingProgress, progress
from tests.callbacks.segmenting import Clouds, Segmenting
from tests.callbacks.tiny import trainer_for


def said(
    folder: Path, shown: TrainingProgress, printed: pytest.CaptureFixture[str], **options: Any
) -> str:
    given = {"max_steps": 3, "enable_checkpointing": False, "enable_progress_bar": True, **options}
    trainer_for(folder, [shown], **given).fit(Segmenting(), Clouds())
    found = printed.readouterr()
    return found.out + found.err


def steps(text: str) -> list[str]:
    """The numbers of the steps that had a line."""
    return [line.split()[1] for line in text.splitlines() if line.startswith("step ")]


def test_bars_on_a_terminal_lines_elsewhere_and_nothing_of_other_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = said(tmp_path, TrainingProgress(10, terminal=True), capsys, max_steps=6)
    assert "6/6" in text
    assert "mIoU=0.25" in text
    assert "validation at step 6  " in text
    assert not steps(text)
    every = said(tmp_path, TrainingProgress(1), capsys, accumulate_grad_batches=3)
    assert steps(every) == ["1/3", "2/3", "3/3"]
    silent = TrainingProgress(1)
    silent.disable()
    assert not steps(said(tmp_path, silent, capsys))
    monkeypatch.setattr(progress, "QUIET", 0.0)
    assert steps(said(tmp_path, TrainingProgress(50), capsys))[-2:] == ["2/3", "3/3"]
