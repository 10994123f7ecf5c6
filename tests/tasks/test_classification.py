from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import BatchStream
from pcnn.datasets.sampler import EpochSampler
from pcnn.losses import CrossEntropy
from pcnn.tasks import ClassificationTask
from pcnn.tasks.schedules import constant, poly
from tests.tasks.quiet import loader, trainer_for

NAMES = ("office", "hallway", "storage")


class Scaled(nn.Module):
    """The features are the logits of the clouds, scaled by one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tensor: Any) -> Tensor:
        logits: Tensor = tensor.features * self.scale
        return logits


def task(lr: float = 0.5, schedule: Any = constant) -> ClassificationTask:
    return ClassificationTask(
        Scaled(), NAMES, CrossEntropy(), partial(torch.optim.SGD, lr=lr), schedule
    )


def batch_of(predicted: list[int], labels: list[int]) -> Any:
    logits = 10.0 * nn.functional.one_hot(torch.tensor(predicted, dtype=torch.int64), 3).float()
    return SimpleNamespace(
        tensor=SimpleNamespace(features=logits),
        labels=torch.tensor(labels, dtype=torch.int64),
        names=tuple(map(str, range(len(labels)))),
        batch_size=len(labels),
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_figures_count_clouds_over_batches_of_any_size(tmp_path: Any) -> None:
    module, trainer = task(), trainer_for(tmp_path)
    # offices 3 of 4 right, hallways 0 of 1; no storage; one cloud without a label, one empty batch
    batches = [batch_of([0, 0, 1], [0, 0, 0]), batch_of([], []), batch_of([0, 0, 2], [0, 1, 255])]
    (figures,) = trainer.validate(module, loader(batches), verbose=False)
    assert figures["val/accuracy"] == pytest.approx(3 / 5)
    assert figures["val/mean_accuracy"] == pytest.approx((3 / 4 + 0) / 2)
    assert figures["val/best_constant"] == pytest.approx(4 / 5)
    assert figures["val/accuracy/office"] == pytest.approx(3 / 4)
    assert figures["val/accuracy/storage"] == 0
    assert figures["val/loss"] == pytest.approx(2 / 5 * 10.0, rel=1e-3)  # two wrong of five
    assert module.confusion["val"][:, :3].tolist() == [[3, 1, 0], [1, 0, 0], [0, 0, 0]]
    (again,) = trainer.validate(module, loader(batches[:1]), verbose=False)
    assert again["val/accuracy"] == pytest.approx(2 / 3)  # a second pass starts from zero


class Clouds(Dataset[int]):
    """Seven clouds."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, key: tuple[int, int]) -> int:
        return key[1] % 3


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
    module, rates = task(lr=1.0, schedule=partial(poly, power=1.0)), Rates()
    trainer = trainer_for(
        tmp_path,
        accumulate_grad_batches=accumulate,
        callbacks=[rates],
        use_distributed_sampler=False,
        **limit,
    )
    trainer.fit(
        module, BatchStream(Clouds(), EpochSampler(7), collate=lambda found: batch_of(found, found))
    )
    assert trainer.global_step == steps
    assert rates.seen == pytest.approx([1 - step / steps for step in range(steps)])
