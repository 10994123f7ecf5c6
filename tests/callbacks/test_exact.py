"""Runs that are killed, stopped or cut end as one that was not, bit for bit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from pcnn.callbacks import Checkpoint, RngState, StopOnSignal, Stopped, stop_signals
from pcnn.callbacks.lightning_internals import close_epoch
from pcnn.callbacks.stop import TWICE
from pcnn.datamodules.batch_stream import batches_done
from pcnn.errors import ConfigError
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
from tests.forking import require_fork
from tests.ranks import OPTIONS, on_two_ranks

pytestmark = pytest.mark.filterwarnings("ignore")

# 6 batches an epoch, 20 steps, last.ckpt every 4: checkpoints in mid-epoch and, at step 12, at the
# end of one
EPOCHS = {"max_steps": -1, "max_epochs": 4}
ACROSS = {"check_val_every_n_epoch": None}
CASES: dict[str, dict[str, Any]] = {
    "validation inside the epoch": {"val_check_interval": 2},
    "validation across epochs": {"val_check_interval": 8, **ACROSS},
    "no validation": {"limit_val_batches": 0},
    "epochs counted, checkpoint every step": {**EPOCHS, "every": 1, "val_check_interval": 2},
    "accumulated gradients": {"accumulate_grad_batches": 2, "max_steps": 14},
    "accumulated gradients, validation inside": {
        **EPOCHS,
        "accumulate_grad_batches": 3,
        "val_check_interval": 2,
    },
    "checkpoint at every epoch's end": {"every": 6},
    "workers": {"workers": 2, "val_check_interval": 4},
}


class Send(L.Callback):
    """A signal to this process at a training batch, or in the validation behind a step."""

    def __init__(self, signum: int, at_batch: int = -1, in_validation_at_step: int = -1) -> None:
        self.signum, self.at_batch = signum, at_batch
        self.in_validation_at_step = in_validation_at_step

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if batches_done(trainer) == self.at_batch:
            os.kill(os.getpid(), self.signum)

    def on_validation_batch_start(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == self.in_validation_at_step and not trainer.sanity_checking:
            os.kill(os.getpid(), self.signum)


def stopped(folder: Path, send: Send, also: tuple[L.Callback, ...] = (), **options: Any) -> int:
    """Train until the signal; the exit code."""
    with stop_signals(speaks=False) as stop:
        try:
            train(folder, also=(*also, send, StopOnSignal(stop)), **options)
            stop.check()  # of a training that had come to its end
        except Stopped as error:
            return int(str(error.code))
    pytest.fail("the signal was lost")


def same_end(broken: Path, straight: Path, case: dict[str, Any]) -> list[L.Trainer]:
    """The run in `broken` goes on to the end of an uninterrupted one, in `straight`: trainers."""
    expected, reference = train(straight, **case)
    resumed, checkpoint = train(broken, **case)
    assert same_weights(resumed, expected)
    assert checkpoint.best_score == reference.best_score
    trainers = [task.trainer for task in (resumed, expected)]
    for trainer in trainers:
        close_epoch(trainer)
    steps = [trainer.fit_loop.epoch_loop._batches_that_stepped for trainer in trainers]
    assert steps[0] == steps[1] == trainers[0].global_step
    if case.get("limit_val_batches") != 0:
        assert validations(broken).items() >= validations(straight).items()
    return trainers


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_killed_run(tmp_path: Path, case: dict[str, Any]) -> None:
    # at an epoch's start, in mid-epoch, behind an epoch's end, and again in that epoch
    for batch in (6, 9, 13, 17):
        train_and_die(tmp_path / "broken", Kill(at_batch=batch), **case)
    same_end(tmp_path / "broken", tmp_path / "straight", case)


@pytest.mark.parametrize(
    ("kill", "interval", "before"),
    [
        (Kill(in_validation_at_step=8), 8, 4),
        (Kill(at_end=True), 8, 20),
        (Kill(at_end=True), 4, 20),  # it is due
    ],
)
def test_a_run_killed_in_a_validation_or_behind_the_last_one(
    tmp_path: Path, kill: Kill, interval: int, before: int
) -> None:
    case = {"val_check_interval": interval, **ACROSS}
    train_and_die(tmp_path / "broken", kill, **case)
    assert held(tmp_path / "broken" / "last.ckpt")["global_step"] == before
    trainers = same_end(tmp_path / "broken", tmp_path / "straight", case)
    assert trainers[0].current_epoch == trainers[1].current_epoch


@pytest.mark.parametrize(
    "name",
    [
        "validation inside the epoch",
        "accumulated gradients",
        "validation across epochs",
    ],
)
def test_a_run_stopped_behind_a_step(tmp_path: Path, name: str) -> None:
    case, broken = CASES[name], tmp_path / "broken"
    every = case.get("accumulate_grad_batches", 1)
    for batch in (2, 8, 12):  # no validation is due behind these
        assert stopped(broken, Send(signal.SIGINT, at_batch=batch), **case) == 130
        assert held(broken / "last.ckpt")["global_step"] == -(-(batch + 1) // every)
    same_end(broken, tmp_path / "straight", case)


@pytest.mark.parametrize("share", [0.01, 1.0])
def test_writing_takes_a_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    def slow(content: dict[str, Any], path: Path) -> None:
        time.sleep(0.05)
        steps.append(content["global_step"])

    steps: list[int] = []
    monkeypatch.setattr("pcnn.callbacks.checkpoint.write_whole", slow)
    train(tmp_path, every=1, share=share, limit_val_batches=0)
    assert steps == [1, 20] if share < 1 else steps == list(range(1, 21))


def test_other_batches_are_refused(tmp_path: Path) -> None:
    _, checkpoint = train(tmp_path, max_steps=3)
    trainer = trainer_for(tmp_path, [RngState(3), Checkpoint(tmp_path, 4, "val/score")])
    path = checkpoint.last_model_path
    with pytest.raises(ConfigError, match="batch_size=2, not 3"):
        trainer.fit(Task(), Data(batch_size=3), ckpt_path=path, weights_only=True)


@pytest.mark.parametrize(("first", "every"), [(3, 100), (8, 4), (9, 4), (12, 4)])
def test_a_run_that_is_made_longer(tmp_path: Path, first: int, every: int) -> None:
    case = {"every": every, "val_check_interval": 5, **ACROSS}
    train(tmp_path / "broken", **{**case, "max_steps": first})
    trainers = same_end(tmp_path / "broken", tmp_path / "straight", case)
    assert trainers[0].current_epoch == trainers[1].current_epoch
    assert list(validations(tmp_path / "broken")) == [5, 10, 15, 20]


# options, and the steps that are validated
ENDS = {
    "steps, between": ({"max_steps": 10, "val_check_interval": 4, **ACROSS}, 10, [4, 8]),
    "steps of accumulated gradients": (
        {"max_steps": 5, "accumulate_grad_batches": 2, "val_check_interval": 4, **ACROSS},
        *(5, [2, 4]),
    ),
    "epochs": ({"max_steps": -1, "max_epochs": 2, "check_val_every_n_epoch": 1}, 12, [6, 12]),
}


@pytest.mark.parametrize(("options", "end", "expected"), ENDS.values(), ids=ENDS.keys())
def test_the_best_and_the_last_state_are_kept(
    tmp_path: Path, options: Any, end: int, expected: Any
) -> None:
    _, checkpoint = train(tmp_path, **options)
    lines = (tmp_path / "validations.jsonl").read_text().splitlines()
    assert [int(line.strip("[]").split(",")[0]) for line in lines] == expected
    scores = validations(tmp_path)
    assert checkpoint.best_score == max(scores.values()) == scores[checkpoint.best_step or 0]
    assert held(tmp_path / "best.ckpt")["global_step"] == checkpoint.best_step
    assert held(tmp_path / "last.ckpt")["global_step"] == end


def test_lower_is_better_and_nan_never_is(tmp_path: Path) -> None:
    class Scripted(Task):
        scores: Iterator[float] = iter([5.0, float("nan"), 3.0, 4.0])

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            self.log("val/score", next(self.scores), batch_size=3)

    checkpoint = Checkpoint(tmp_path, 100, "val/score", mode="min")
    options = {"max_steps": 8, "val_check_interval": 2, "num_sanity_val_steps": 0}
    trainer_for(tmp_path, [checkpoint], **options).fit(Scripted(), Data())
    assert (checkpoint.best_score, checkpoint.best_step) == (3.0, 6)


def test_a_monitor_that_is_not_logged_and_a_config_that_would_not_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="val/nonsense"):
        train_with(tmp_path, Checkpoint(tmp_path, 2, "val/nonsense"))
    for config in ({"a": {"b": Path("x")}}, {"a": [1, (2,)]}, {(1, 2): 2}):
        with pytest.raises(ConfigError):
            train_with(tmp_path, Checkpoint(tmp_path, 2, "val/score", config=config))


def train_with(folder: Path, *callbacks: L.Callback, **options: Any) -> L.Trainer:
    trainer = trainer_for(folder, list(callbacks), **{"max_steps": 6, **options})
    trainer.fit(Task(), Data())
    return trainer


def stop_on_rank(rank: int, folder: Path) -> None:
    for at, last in ((2, 4), (7, 8)):  # the ranks agree every second step
        with stop_signals(speaks=False) as signals:
            send = [Send(signal.SIGINT, at_batch=at)] if rank else []
            kept = Checkpoint(folder, 100, "val/score")
            trainer = trainer_for(folder, [*send, StopOnSignal(signals, 2), kept], **OPTIONS)
            with pytest.raises(Stopped) as error:
                trainer.fit(Task(), Data(), ckpt_path=kept.last_model_path or None)
        assert (error.value.code, trainer.global_step) == (130 if rank else 143, last)
        trainer.strategy.barrier()
        assert held(folder / "last.ckpt")["global_step"] == last
        trainer.strategy.barrier()
    with stop_signals(speaks=False) as signals:
        send = [Send(signal.SIGTERM, in_validation_at_step=0)] if rank else []
        trainer = trainer_for(folder, [*send, StopOnSignal(signals)], **OPTIONS)
        with pytest.raises(Stopped):
            trainer.validate(Task(), Data(), verbose=False)


def test_all_ranks_stop_at_one_step_for_a_signal_to_one(tmp_path: Path) -> None:
    on_two_ranks(stop_on_rank, tmp_path)


def test_outside_a_trainer_a_run_stops_at_once_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped) as error, stop_signals(speaks=False):
        signal.raise_signal(signal.SIGTERM)
    assert error.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_second_ctrl_c_ends_at_once() -> None:
    require_fork()
    child = os.fork()
    if child == 0:
        with stop_signals(speaks=False) as stop:
            stop.deferring = True
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # by a launcher that sends it twice
            if stop.signum != signal.SIGINT:
                os._exit(1)
            time.sleep(TWICE * 1.2)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGINT
