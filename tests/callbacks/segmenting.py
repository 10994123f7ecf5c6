"""A task with the outputs that pictures and media take, on batches with points."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from pcnn.metrics import summary
from pcnn.metrics.confusion import ConfusionMatrix

NAMES = ("road", "car", "building")
POINTS = 400


def collate(samples: list[int]) -> Any:
    generator = torch.Generator().manual_seed(samples[0])
    points = torch.rand(POINTS, 3, generator=generator) * 40 - 20
    labels = torch.randint(0, 3, (POINTS,), generator=generator)
    labels[:50] = 255
    tensor = SimpleNamespace(features=points[::4])
    return SimpleNamespace(points=points, labels=labels, tensor=tensor, name=f"scan {samples[0]}")


class Clouds(L.LightningDataModule):
    source_kind = "simulated"

    def train_dataloader(self) -> DataLoader:
        return DataLoader(range(6), collate_fn=collate)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(range(3), collate_fn=collate)

    test_dataloader = val_dataloader


class Segmenting(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.class_names = NAMES
        self.counts = ConfusionMatrix(3)
        self.confusion: dict[str, torch.Tensor] = {}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch.points), batch.labels, ignore_index=255)
        self.log("train/loss", loss.detach(), prog_bar=True, batch_size=1)
        self.log("train/miou", 0.25, prog_bar=True, batch_size=1)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        pred = self.net(batch.points).argmax(1)
        self.counts.update(pred, batch.labels)
        return {"points": batch.points, "pred": pred, "target": batch.labels, "name": batch.name}

    test_step = validation_step

    def on_validation_epoch_end(self, stage: str = "val") -> None:
        self.confusion[stage] = self.counts.compute()
        self.log_dict(summary(self.confusion[stage], f"{stage}/"))
        self.counts.reset()

    def on_test_epoch_end(self) -> None:
        self.on_validation_epoch_end("test")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)
