from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.optim.lr_scheduler import LRScheduler

from pcnn.tasks.schedules import constant, cosine, exponential, multi_step, one_cycle, poly


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


def test_cosine_warms_up_linearly() -> None:
    seen = rates(partial(cosine, warmup_steps=4), 20, 20)
    assert seen[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert seen[4] == pytest.approx(1.0)
    assert seen[12] == pytest.approx(0.5)
    assert 0 < seen[19] < 0.02


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


EPOCHS_24_AND_32 = partial(multi_step, milestones=[24 / 36, 32 / 36])


def test_multi_step_falls_at_its_milestones() -> None:
    seen = rates(EPOCHS_24_AND_32, 360, 360)
    assert seen[239] == 1.0
    assert seen[240] == seen[319] == pytest.approx(0.1)
    assert seen[320] == seen[359] == pytest.approx(0.01)


def test_poly_falls_to_zero() -> None:
    seen = rates(partial(poly, power=2.0), 12, 10)
    assert seen[:2] == pytest.approx([1.0, 0.81])
    assert seen[10:] == [0.0, 0.0]


ALL = [one_cycle, cosine, exponential, constant, EPOCHS_24_AND_32, poly]


@pytest.mark.parametrize("make", ALL)
def test_resumed_beyond_the_end_and_for_one_step(make: Callable[..., LRScheduler]) -> None:
    assert rates(make, 20, 20, start=7) == rates(make, 20, 20)[7:]
    assert all(0 <= rate <= 1 for rate in rates(make, 30, 20))
    assert len(rates(make, 1, 1)) == 1
