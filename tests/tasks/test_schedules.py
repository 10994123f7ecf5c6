from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import BatchStream
from pcnn.datasets.sampler import EpochSampler
from pcnn.losses import CrossEntropy
from pcnn.tasks import SegmentationTask
from pcnn.tasks.schedules import constant, cosine, exponential, multi_step, one_cycle, poly
from tests.tasks.quiet import Lookup, trainer_for


def rates(make: Callable[..., LRScheduler], steps: int, total: int, start: int = 0) -> list[float]:
    """Learning rates of a peak of 1 at the steps start..steps-1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer, total_steps=total)
    if start:
        schedule.load_state_dict({**schedule.state_dict(), "last_epoch": start - 1})
        optimizer.step()
        schedule.step()
    seen = []
    for _ in range(start, steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


def test_one_cycle_agrees_with_torch() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1.0, total_steps=51, pct_start=0.4, div_factor=25, final_div_factor=400
    )
    seen = []
    for _ in range(51):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(seen) < 51:
            theirs.step()
    # torch counts the peak's place from 0.4 * 51 - 1
    ours = rates(partial(one_cycle, warmup=(0.4 * 51 - 1) / 51, start=0.04, end=1e-4), 51, 51)
    assert ours == pytest.approx(seen, abs=1e-6)
    ends = rates(partial(one_cycle, warmup=0.3, start=0.04, end=1e-4), 100, 100)
    assert [ends[0], ends[30], ends[99]] == pytest.approx([0.04, 1.0, 1e-4])


@pytest.mark.parametrize(
    ("make", "steps", "total", "expected"),
    [
        (partial(cosine, warmup_steps=4), 20, 20, {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0, 12: 0.5}),
        (
            partial(multi_step, milestones=[2 / 3, 8 / 9]),
            18,
            18,
            {11: 1, 12: 0.1, 15: 0.1, 16: 0.01},
        ),
        (partial(poly, power=2.0), 12, 10, {0: 1.0, 1: 0.81, 10: 0.0, 11: 0.0}),
    ],
)
def test_rates_at_steps(
    make: Callable[..., LRScheduler], steps: int, total: int, expected: dict[int, float]
) -> None:
    seen = rates(make, steps, total)
    assert {step: seen[step] for step in expected} == pytest.approx(expected)


def test_exponential_is_torchs_by_epochs() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    seen = []
    for _ in range(6):
        seen += [optimizer.param_groups[0]["lr"]] * 7
        optimizer.step()
        theirs.step()
    assert rates(partial(exponential, gamma=0.9, epochs=6), 42, 42) == pytest.approx(seen)
    # a run of another length falls as far
    short = rates(partial(exponential, gamma=0.9, epochs=6), 4, 4)
    assert short[0] == 1
    assert short == sorted(short, reverse=True)
    assert 0.9**5 < short[-1] < 0.9**3


ALL = [one_cycle, cosine, exponential, constant, multi_step, poly]


@pytest.mark.parametrize("make", ALL)
def test_resumed_beyond_the_end_and_for_one_step(make: Callable[..., LRScheduler]) -> None:
    assert rates(make, 20, 20, start=7) == rates(make, 20, 20)[7:]
    assert all(0 <= rate <= 1 for rate in rates(make, 30, 20))
    assert len(rates(make, 1, 1)) == 1


class Clouds(Dataset[int]):
    """Seven clouds."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, key: tuple[int, int]) -> int:
        return key[1] % 3


def batch_of(classes: list[int]) -> Any:
    """A row a cloud, with logits for its own class."""
    labels = torch.tensor(classes)
    tensor = SimpleNamespace(features=torch.eye(3)[labels])
    return SimpleNamespace(tensor=tensor, labels=labels, batch_size=len(classes))


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
    sgd, line, seen = partial(torch.optim.SGD, lr=1.0), partial(poly, power=1.0), Rates()
    trainer = trainer_for(
        tmp_path,
        accumulate_grad_batches=accumulate,
        callbacks=[seen],
        use_distributed_sampler=False,
        **limit,
    )
    trainer.fit(
        SegmentationTask(Lookup(), "abc", CrossEntropy(), sgd, line),
        BatchStream(Clouds(), EpochSampler(7), collate=batch_of),
    )
    assert trainer.global_step == steps
    assert seen.seen == pytest.approx([1 - step / steps for step in range(steps)])
