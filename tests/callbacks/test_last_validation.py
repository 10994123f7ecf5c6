"""The last state is validated, once, where training ends between two validations."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.loggers import CSVLogger

from pcnn.callbacks import Checkpoint, RngState, WeightAverage
from pcnn.callbacks.rng_state import restore_rng
from tests.callbacks.tiny import (
    Data,
    Kill,
    Task,
    held,
    same_weights,
    train,
    train_and_die,
    trainer_for,
    validations,
)

pytestmark = pytest.mark.filterwarnings("ignore")

ACROSS = {"check_val_every_n_epoch": None}
# 6 batches an epoch; options, and the steps that are validated
ENDS = {
    "steps, between": ({"max_steps": 10, "val_check_interval": 4, **ACROSS}, [4, 8, 10]),
    "steps, at an epoch's end": ({"max_steps": 12, "val_check_interval": 5, **ACROSS}, [5, 10, 12]),
    "steps, where a checkpoint is due": ({"max_steps": 8, "val_check_interval": 3}, [3, 6, 8]),
    "steps, before the first": ({"max_steps": 3}, [3]),
    "steps, validated anyway": ({"max_steps": 8, "val_check_interval": 4, **ACROSS}, [4, 8]),
    "steps of accumulated gradients": (
        {"max_steps": 5, "accumulate_grad_batches": 2, "val_check_interval": 8, **ACROSS},
        [4, 5],
    ),
    "epochs, between": (
        {"max_steps": -1, "max_epochs": 2, "val_check_interval": 5, **ACROSS},
        [5, 10, 12],
    ),
    "epochs, the last left out": (
        {"max_steps": -1, "max_epochs": 3, "check_val_every_n_epoch": 2},
        [12, 18],
    ),
    "epochs, validated anyway": ({"max_steps": -1, "max_epochs": 2}, [6, 12]),
    "more epochs than steps": ({"max_steps": 8, "max_epochs": 9}, [6, 8]),
}


class Scripted(Task):
    """A task whose validations give the scores that a test names."""

    def __init__(self, folder: Path, scores: Iterator[float]) -> None:
        super().__init__(folder / "validations.jsonl")
        self.scores = scores

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val/score", next(self.scores), batch_size=3)


class TimeIsUp(L.Callback):
    """Takes the rest of `max_time` away in a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.step - 1:
            (timer,) = (each for each in trainer.callbacks if isinstance(each, Timer))
            timer._duration = 0.0


def steps(folder: Path) -> list[int]:
    """The steps of all validations, repeated ones included."""
    lines = (folder / "validations.jsonl").read_text().splitlines()
    return [int(line.strip("[]").split(",")[0]) for line in lines]


def scripted(folder: Path, scores: list[float], **options: Any) -> Checkpoint:
    folder.mkdir()
    checkpoint = Checkpoint(folder, 100, "val/score")
    given = {"num_sanity_val_steps": 0, **ACROSS, **options}
    trainer_for(folder, [checkpoint], **given).fit(Scripted(folder, iter(scores)), Data())
    return checkpoint


@pytest.mark.parametrize(("options", "expected"), ENDS.values(), ids=ENDS.keys())
def test_the_last_state_is_validated_once(tmp_path: Path, options: dict, expected: list) -> None:
    task, checkpoint = train(tmp_path, **options)
    assert steps(tmp_path) == expected
    assert checkpoint.best_score == max(validations(tmp_path).values())
    last = held(tmp_path / "last.ckpt")
    assert last["global_step"] == expected[-1]
    (kept,) = (state for name, state in last["callbacks"].items() if "Checkpoint" in name)
    assert kept == {"best_score": checkpoint.best_score, "best_step": checkpoint.best_step}
    assert task.trainer.check_val_every_n_epoch == options.get("check_val_every_n_epoch", 1)


def test_the_last_state_becomes_the_best_only_when_it_is(tmp_path: Path) -> None:
    better = scripted(tmp_path / "better", [1.0, 2.0, 3.0], max_steps=10, val_check_interval=4)
    assert (better.best_score, better.best_step) == (3.0, 10)
    assert held(tmp_path / "better" / "best.ckpt")["global_step"] == 10
    worse = scripted(tmp_path / "worse", [1.0, 2.0, 0.0], max_steps=10, val_check_interval=4)
    assert (worse.best_score, worse.best_step) == (2.0, 8)
    assert held(tmp_path / "worse" / "best.ckpt")["global_step"] == 8
    only = scripted(tmp_path / "only", [5.0], max_steps=3, val_check_interval=100)
    assert (only.best_score, only.best_step) == (5.0, 3)


@pytest.mark.parametrize("step", [6, 8, 9])  # the end of an epoch, of a checkpoint's interval, none
@pytest.mark.parametrize("epochs", [False, True], ids=["interval in steps", "in epochs"])
def test_a_run_that_time_cuts(tmp_path: Path, step: int, epochs: bool) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options: dict[str, Any] = {"val_check_interval": 5, **ACROSS}
    if epochs:
        options = {"max_steps": -1, "max_epochs": 4, "check_val_every_n_epoch": 4}
    _, checkpoint = train(broken, kill=TimeIsUp(step), max_time="00:01:00:00", **options)
    assert steps(broken) == ([] if epochs else [5]) + [step]
    assert held(broken / "last.ckpt")["global_step"] == step
    assert checkpoint.best_score == max(validations(broken).values())
    # given more time it ends as if it had never been cut
    resumed, _ = train(broken, **options)
    expected, _ = train(straight, **options)
    assert same_weights(resumed, expected)
    common = validations(straight)
    assert common == {k: v for k, v in validations(broken).items() if k in common}


@pytest.mark.parametrize(("first", "every"), [(3, 100), (6, 4), (8, 4), (9, 4), (9, 100), (12, 4)])
def test_a_longer_run_does_not_feel_it(tmp_path: Path, first: int, every: int) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options = {"every": every, "val_check_interval": 5, **ACROSS}
    expected, _ = train(straight, **options)
    train(broken, max_steps=first, **options)
    resumed, checkpoint = train(broken, **options)
    assert same_weights(resumed, expected)
    assert steps(broken) == sorted({first, 5, 10, 15, 20})
    assert validations(broken).items() >= validations(straight).items()
    assert checkpoint.best_score == max(validations(broken).values())
    loops = [task.trainer.fit_loop.epoch_loop for task in (resumed, expected)]
    assert loops[0]._batches_that_stepped == loops[1]._batches_that_stepped


def test_generators_stay_as_they_were(tmp_path: Path) -> None:
    """`Task` draws in validation; a run without any has the same generators at its end."""
    draws = []
    for name, limit in (("with", 1.0), ("without", 0)):
        train(
            tmp_path / name, max_steps=10, val_check_interval=4, limit_val_batches=limit, **ACROSS
        )
        restore_rng(held(tmp_path / name / "last.ckpt")["callbacks"]["RngState"])
        draws.append(torch.rand(3))
    assert torch.equal(*draws)
    train(tmp_path / "best", max_steps=3)
    restore_rng(held(tmp_path / "best" / "best.ckpt")["callbacks"]["RngState"])
    first = torch.rand(3)
    restore_rng(held(tmp_path / "best" / "last.ckpt")["callbacks"]["RngState"])
    assert torch.equal(first, torch.rand(3))


def test_killed_in_the_last_validation_repeats_it(tmp_path: Path) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    options = {"max_steps": 12, "val_check_interval": 5, **ACROSS}  # a checkpoint is due at 12
    train(straight, **options)
    train_and_die(broken, Kill(in_validation_at_step=12), **options)
    assert held(broken / "last.ckpt")["global_step"] == 8
    train(broken, **options)
    assert validations(broken) == validations(straight)


def test_nothing_to_validate_with(tmp_path: Path) -> None:
    _, checkpoint = train(tmp_path, max_steps=3, limit_val_batches=0)
    assert checkpoint.best_model_path == ""
    assert held(tmp_path / "last.ckpt")["global_step"] == 3
    assert not (tmp_path / "validations.jsonl").exists()


def test_a_dry_run_stays_one(tmp_path: Path) -> None:
    task = Task(tmp_path / "validations.jsonl")
    checkpoint = Checkpoint(tmp_path, 1, "val/score")
    trainer_for(tmp_path, [checkpoint], fast_dev_run=2).fit(task, Data())
    assert steps(tmp_path) == [2]
    assert not list(tmp_path.glob("*.ckpt"))


def test_the_average_is_what_is_validated_and_kept(tmp_path: Path) -> None:
    task = Task(tmp_path / "validations.jsonl")
    seen: list[torch.Tensor] = []
    task.on_validation_epoch_start = lambda: seen.append(  # type: ignore[method-assign]
        task.net[0].weight.detach().clone()
    )
    callbacks = [RngState(3), WeightAverage(0.9), Checkpoint(tmp_path, 100, "val/score")]
    trainer = trainer_for(tmp_path, callbacks, max_steps=3, num_sanity_val_steps=0)
    trainer.fit(task, Data())
    best, last = held(tmp_path / "best.ckpt"), held(tmp_path / "last.ckpt")
    assert len(seen) == 1
    for content in (best, last):
        assert torch.equal(content["state_dict"]["net.0.weight"], seen[0])
        assert torch.equal(content["current_model_state"]["net.0.weight"], task.net[0].weight)
    assert not torch.equal(seen[0], task.net[0].weight)


def test_loggers_have_one_row_under_the_step_of_any_validation(tmp_path: Path) -> None:
    rows = {}
    for name, interval in (("asked", 4), ("due", 5)):
        logger = CSVLogger(tmp_path, name, version="0")
        options = {"max_steps": 10, "val_check_interval": interval, **ACROSS}
        train(tmp_path / name, logger=logger, log_every_n_steps=1, **options)
        with (tmp_path / name / "0" / "metrics.csv").open() as file:
            rows[name] = [row for row in csv.DictReader(file) if row["val/score"]]
    assert [row["step"] for row in rows["asked"]] == ["3", "7", "9"]
    assert [row["step"] for row in rows["due"]] == ["4", "9"]
    assert rows["asked"][-1] == rows["due"][-1]
