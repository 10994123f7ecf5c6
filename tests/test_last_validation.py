"""train.py evaluates and ships the last state of a run that ends between two validations."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch

from tests.experiment.command import TINY, run
from tests.experiment.tiny_kitti import write_tiny_kitti

ALONE = ("trainer=cpu", "callbacks.ema.decay=0.5")
RANKS = ("trainer=ddp_sim", "callbacks=plain")
LOSS = ("callbacks.checkpoint.monitor=val/loss", "callbacks.checkpoint.mode=min")


@pytest.mark.parametrize("options", [ALONE, RANKS], ids=["averaged weights", "two ranks, plain"])
def test_the_last_state_is_evaluated(tmp_path: Path, options: tuple[str, ...]) -> None:
    write_tiny_kitti(tmp_path / "kitti", {0: 4, 8: 3})
    ends = ("dataset.root=kitti", "trainer.max_steps=5", "trainer.val_check_interval=3")
    folder = ("hydra.run.dir=one",)
    said = run("train.py", *TINY, *ends, *options, *LOSS, *folder, cwd=tmp_path).stdout
    (path,) = (tmp_path / "one").glob("csv/*/*.csv")
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    # loggers count from 0
    first, last = (float(row["val/loss"]) for row in rows[:2])
    step = 5 if last < first else 3
    # a last row is the evaluation of best.ckpt, unless that is the state validated last
    assert [row["step"] for row in rows] == (["2", "4"] if step == 5 else ["2", "4", "5"])
    evaluated = float(rows[-1]["val/loss"])
    assert evaluated == pytest.approx(min(first, last), rel=1e-5)
    figures = json.loads((tmp_path / "one" / "metrics.json").read_text())["metrics"]
    assert figures["val/loss"] == pytest.approx(evaluated)
    for name, steps in (("best.ckpt", step), ("last.ckpt", 5)):
        path = tmp_path / "one" / "checkpoints" / name
        assert torch.load(path, weights_only=True)["global_step"] == steps
    assert f"best.ckpt, step {step} of 5" in said
