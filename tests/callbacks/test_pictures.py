"""Pairs become pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader

from pcnn.callbacks import Pictures
from pcnn.loggers import RunWandbLogger
from pcnn.visualize.registration import ShownPair
from tests.callbacks.tiny import trainer_for

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("WANDB_SILENT", "true")
    yield
    wandb.teardown()


def pair_of(index: int) -> ShownPair:
    """Places moved by one metre; the second pair has no estimate."""
    source = torch.rand(60, 3, generator=torch.Generator().manual_seed(index))
    truth = torch.eye(4, dtype=torch.float64)
    truth[0, 3] = 1.0
    target = source + torch.tensor([1.0, 0.0, 0.0])
    return ShownPair.of(str(index), source, target, None if index == 1 else truth)


class Registering(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(1, 1)

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, ShownPair]:
        return {"pair": pair_of(batch_idx)}


def test_pairs_are_drawn_and_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}
    logger = RunWandbLogger(tmp_path, mode="offline")
    monkeypatch.setattr(logger, "log_metrics", lambda metrics, step=None: sent.update(metrics))
    trainer = trainer_for(tmp_path, [Pictures(tmp_path)], logger=logger)
    trainer.validate(Registering(), DataLoader(range(3)), verbose=False)
    logger.finish()
    assert (tmp_path / "predictions.png").stat().st_size > 10_000
    assert isinstance(sent["val/pair"], wandb.Image)
