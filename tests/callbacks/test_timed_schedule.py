"""Rates follow the time that is left, and only where it ends before the steps."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from pcnn.callbacks import TimedSchedule
from pcnn.tasks.schedules import cosine


class Clock:
    """Time as the steps tell it, so that a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    told = Clock()
    monkeypatch.setattr(time, "monotonic", told)
    return told


class Slow(L.LightningModule):
    """A step takes `seconds`; rates are noted as they are used."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.net, self.seconds = nn.Linear(1, 1), seconds
        self.rates: list[float] = []
        self.times: list[float] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        clock: Any = time.monotonic
        clock.now += self.seconds
        self.times.append(clock())
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return self.net(batch).sum()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.net.parameters(), lr=1.0)
        total = int(self.trainer.estimated_stepping_batches)
        schedule: LRScheduler = cosine(optimizer, total, warmup_steps=10)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def trained(folder: Path, steps: int, seconds: float, limit: str | None, settle: int) -> Slow:
    task = Slow(seconds)
    trainer = L.Trainer(
        default_root_dir=folder,
        max_steps=steps,
        max_time=limit,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[TimedSchedule(settle)],
    )
    trainer.fit(task, DataLoader(torch.ones(5000, 1)))
    return task


@pytest.mark.parametrize("limit", [None, "00:00:05:00"])
def test_runs_with_enough_time_keep_their_schedule(tmp_path: Path, limit: str | None) -> None:
    found = trained(tmp_path, 40, 0.0, limit, settle=2).rates
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = cosine(optimizer, 40, warmup_steps=10)
    wanted = []
    for _ in range(40):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert found == wanted


def test_rates_are_down_when_time_is_up(tmp_path: Path) -> None:
    task = trained(tmp_path, 100_000, 0.01, "00:00:00:02", settle=5)
    assert max(task.rates) == pytest.approx(1.0, abs=0.05)  # the warm-up is passed through
    assert task.rates[-1] < 0.01
    begun = task.times[5]
    for moment, rate in zip(task.times[10:], task.rates[10:], strict=True):
        share = (moment - begun) / (task.times[-1] - begun)
        assert rate == pytest.approx((1 + math.cos(math.pi * share)) / 2, abs=0.1)


def test_settle_is_a_number_of_steps() -> None:
    with pytest.raises(ValueError, match="settle"):
        TimedSchedule(0)
