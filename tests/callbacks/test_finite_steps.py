"""A step whose loss or gradients are no numbers of a usual size changes nothing, and is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from pcnn.callbacks import FiniteSteps
from pcnn.errors import RunWarning
from tests.callbacks.tiny import Task, trainer_for


class Broken(Task):
    """Steps of these numbers break: in a way of their own."""

    def __init__(self, broken: set[int], kind: str = "NaN", fused: bool = False) -> None:
        super().__init__()
        self.broken, self.kind, self.fused = broken, kind, fused

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        breaks = self.global_step in self.broken
        if breaks and self.kind != "exploding":  # NaN all the way to the running statistics
            batch = batch * torch.nan
        loss: torch.Tensor = (self.net(batch) - 1).square().mean()
        if breaks and self.kind == "exploding":  # the loss stays finite, the gradients large
            return loss * 1e12
        if breaks and self.kind == "unnoticed":  # the loss is 0, as of pairs without a match
            return torch.stack([p.sum() for p in self.net.parameters()]).sum() * 0
        return loss

    def configure_optimizers(self) -> Any:
        # no momentum, no decay
        return torch.optim.SGD(self.parameters(), lr=0.1, fused=self.fused)


def fit(
    folder: Path,
    broken: set[int],
    steps: int = 8,
    guarded: bool = True,
    patience: int = 100,
    **options: Any,
) -> Broken:
    torch.manual_seed(1)
    data = DataLoader(torch.randn(16, 4), batch_size=2)
    guard = [FiniteSteps(every_n_steps=2, patience=patience)] if guarded else []
    task = Broken(broken, **options)
    trainer_for(folder, guard, max_steps=steps, enable_checkpointing=False).fit(task, data)
    return task


def small(task: Broken) -> torch.Tensor:
    """Which weights and statistics are numbers of a usual size."""
    values = task.net.state_dict().values()
    return torch.cat([value.detach().flatten().abs() < 10 for value in values])


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", ["NaN", "exploding"])
def test_a_broken_step_changes_nothing_and_is_told(tmp_path: Path, kind: str, fused: bool) -> None:
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


def test_statistics_that_break_unnoticed_come_back_and_good_steps_keep_their_bits(
    tmp_path: Path,
) -> None:
    assert small(fit(tmp_path, {3}, kind="unnoticed")).all()
    one, other = (fit(tmp_path, set(), guarded=guarded) for guarded in (True, False))
    for name, value in one.net.state_dict().items():
        assert torch.equal(value, other.net.state_dict()[name]), name


def test_counts_go_on_behind_a_resume(tmp_path: Path) -> None:
    """Three of six steps break, one of them before the checkpoint: no error, whole counts."""
    data = DataLoader(torch.randn(8, 4), batch_size=2)
    guard, again = FiniteSteps(every_n_steps=2), FiniteSteps(every_n_steps=2)
    options: dict[str, Any] = {"enable_checkpointing": False}
    trainer = trainer_for(tmp_path, [guard], max_steps=4, **options)
    with pytest.warns(RunWarning, match="1 step so far"):
        trainer.fit(Broken({2}), data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    longer = trainer_for(tmp_path, [again], max_steps=6, **options)
    with pytest.warns(RunWarning, match="3 steps so far"):
        longer.fit(Broken({4, 5}), data, ckpt_path=tmp_path / "a.ckpt", weights_only=True)
    content = torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"]["FiniteSteps"]
    assert content["told"] == 1
    assert content["kept"].keys() == {"net.1.running_mean", "net.1.running_var"}
    assert again.state_dict()["counts"].tolist() == [3, 2, 0]
    assert again.state_dict()["first_step"] == 0
