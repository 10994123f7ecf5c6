from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader

from pcnn.callbacks import FiniteSteps
from pcnn.errors import NotFiniteError, RunWarning
from tests.callbacks.tiny import Task, trainer_for


class Broken(Task):
    """A batch of these numbers holds NaN, all the way to the running statistics."""

    def __init__(self, broken: set[int], fused: bool = False) -> None:
        super().__init__()
        self.broken, self.fused = broken, fused

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        if batch_idx in self.broken:
            batch = batch * torch.nan
        loss: torch.Tensor = (self.net(batch) - 1).square().mean()
        return loss

    def configure_optimizers(self) -> Any:
        # no momentum, no decay
        return torch.optim.SGD(self.parameters(), lr=0.1, fused=self.fused)


def fit(
    folder: Path,
    broken: set[int],
    steps: int = 8,
    guarded: bool = True,
    kind: type[Broken] = Broken,
    fused: bool = False,
    **options: Any,
) -> Broken:
    torch.manual_seed(1)
    data = DataLoader(torch.randn(16, 4), batch_size=2)
    guard = FiniteSteps(every_n_steps=2, **options)
    trainer: Trainer = trainer_for(
        folder, [guard] if guarded else [], max_steps=steps, enable_checkpointing=False
    )
    task = kind(broken, fused)
    trainer.fit(task, data)
    return task


def state(task: Broken) -> dict[str, torch.Tensor]:
    return dict(task.net.state_dict())


class Exploding(Broken):
    """The loss stays finite, the gradients do not stay small."""

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        factor = 1e12 if batch_idx in self.broken else 1.0
        return super().training_step(batch, -1) * factor


def small(task: Broken) -> torch.Tensor:
    """Which weights and statistics are numbers of a usual size."""
    return torch.cat([value.detach().flatten().abs() < 10 for value in state(task).values()])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [Broken, Exploding])
def test_a_broken_step_changes_nothing_and_is_told(
    tmp_path: Path, kind: type[Broken], fused: bool
) -> None:
    options: dict[str, Any] = {"kind": kind, "fused": fused}
    with pytest.warns(RunWarning, match="2 steps"):
        assert small(fit(tmp_path, {3, 4}, **options)).all()
    bare = fit(tmp_path, {3, 4}, guarded=False, **options)
    assert not bool((bare.net[0].weight.abs() < 10).any())
    # weights before and behind the broken step are the same
    one = fit(tmp_path, set(), steps=7, **options)
    with pytest.warns(RunWarning, match="1 step"):
        other = fit(tmp_path, {7}, steps=8, **options)
    for name, parameter in one.net.named_parameters():
        assert torch.equal(parameter, dict(other.net.named_parameters())[name]), name


class Unnoticed(Broken):
    """Features are NaN and the loss is 0, as of pairs without a match."""

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return sum(p.sum() for p in self.net.parameters()) * 0 if batch_idx in self.broken else loss


def test_statistics_that_break_unnoticed_come_back(tmp_path: Path) -> None:
    assert small(fit(tmp_path, {3}, kind=Unnoticed)).all()


def test_good_steps_have_the_same_bits(tmp_path: Path) -> None:
    one, other = fit(tmp_path, set()), fit(tmp_path, set(), guarded=False)
    for name, value in state(one).items():
        assert torch.equal(value, state(other)[name]), name


@pytest.mark.parametrize(
    ("broken", "options", "said"),
    [
        (set(range(2, 8)), {"patience": 3}, "of 4 steps in a row is NaN"),
        ({0, 2, 3, 5, 7}, {}, "5 of 8 steps were left out"),
    ],
)
def test_patience_has_an_end(
    tmp_path: Path, broken: set[int], options: dict[str, Any], said: str
) -> None:
    with (
        pytest.warns(UserWarning, match="NaN or infinite"),
        pytest.raises(NotFiniteError, match=said),
    ):
        fit(tmp_path, broken, **options)


def test_counts_go_on_behind_a_resume(tmp_path: Path) -> None:
    """Three of six steps break, one of them before the checkpoint: no error, whole counts."""

    class Shared(Broken):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            return super().training_step(batch, self.global_step)

    data = DataLoader(torch.randn(8, 4), batch_size=2)
    guard, again = FiniteSteps(every_n_steps=2), FiniteSteps(every_n_steps=2)
    options: dict[str, Any] = {"enable_checkpointing": False}
    trainer = trainer_for(tmp_path, [guard], max_steps=4, **options)
    with pytest.warns(RunWarning, match="1 step so far"):
        trainer.fit(Shared({2}), data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    longer = trainer_for(tmp_path, [again], max_steps=6, **options)
    with pytest.warns(RunWarning, match="3 steps so far"):
        longer.fit(Shared({4, 5}), data, ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"]["FiniteSteps"]
    assert content["told"] == 1
    assert content["kept"].keys() == {"net.1.running_mean", "net.1.running_var"}
    assert again.state_dict()["counts"].tolist() == [3, 2, 0]
    assert again.state_dict()["first_step"] == 0
