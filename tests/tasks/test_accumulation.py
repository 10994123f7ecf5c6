"""A schedule counts optimiser steps, however many batches make one."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import BatchStream
from pcnn.datasets.sampler import EpochSampler
from pcnn.losses import CrossEntropy
from pcnn.tasks import ClassificationTask
from pcnn.tasks.schedules import poly
from tests.tasks.quiet import trainer_for


class Scaled(nn.Module):
    """The features are the logits, scaled by one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tensor: Any) -> Any:
        return tensor.features * self.scale


class Clouds(Dataset[int]):
    """Seven clouds."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, key: tuple[int, int]) -> int:
        return key[1] % 3


def collate(labels: Any) -> Any:
    return SimpleNamespace(
        tensor=SimpleNamespace(features=torch.eye(3)[torch.tensor(labels)]),
        labels=torch.tensor(labels),
        batch_size=len(labels),
    )


class Rates(L.Callback):
    """The rate of every optimiser step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.seen.append(optimizer.param_groups[0]["lr"])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("limit", "accumulate", "steps"),
    [({"max_epochs": 2}, 1, 14), ({"max_epochs": 2}, 3, 6), ({"max_steps": 5}, 3, 5)],
)
def test_the_schedule_ends_with_the_training(
    tmp_path: Any, limit: dict[str, int], accumulate: int, steps: int
) -> None:
    # three batches a step leave one for the last step of an epoch
    task = ClassificationTask(
        Scaled(), "abc", CrossEntropy(), partial(torch.optim.SGD, lr=1.0), partial(poly, power=1.0)
    )
    rates = Rates()
    trainer = trainer_for(
        tmp_path,
        accumulate_grad_batches=accumulate,
        callbacks=[rates],
        use_distributed_sampler=False,
        **limit,
    )
    trainer.fit(task, BatchStream(Clouds(), EpochSampler(7), collate=collate))
    assert trainer.global_step == steps
    assert rates.seen == pytest.approx([1 - step / steps for step in range(steps)])
