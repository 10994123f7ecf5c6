"""Ctrl-C and SIGTERM end a training where a resumed one goes on bit for bit."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest

from pcnn.callbacks import Checkpoint, StopOnSignal, Stopped, WeightAverage, stop_signals
from pcnn.callbacks.stop import TWICE
from pcnn.datamodules.batch_stream import batches_done, leave_stop_signals
from tests.callbacks.test_checkpoint import CASES, logged_step
from tests.callbacks.test_last_validation import steps
from tests.callbacks.tiny import (
    Data,
    Task,
    held,
    same_weights,
    train,
    trainer_for,
    validations,
)
from tests.forking import require_fork

pytestmark = pytest.mark.filterwarnings("ignore")


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
    """Train until the signal; returns the exit code."""
    with stop_signals(speaks=False) as stop:
        try:
            train(folder, also=(*also, send, StopOnSignal(stop)), **options)
            stop.check()  # of a training that had come to its end
        except Stopped as error:
            return int(str(error.code))
    pytest.fail("the signal was lost")


# those in which the stop meets validations, ends of epochs and checkpoints differently
STOPS = (
    *("validation at every epoch's end", "validation inside the epoch", "no validation"),
    *("validation across epochs", "epochs counted, validation inside", "accumulated gradients"),
    "epochs counted, checkpoint every step",
)


@pytest.mark.parametrize("case", map(CASES.__getitem__, STOPS), ids=STOPS)
def test_stopped_and_resumed_equals_uninterrupted(tmp_path: Path, case: dict) -> None:
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    expected, reference = train(straight, **case)
    every = case.get("accumulate_grad_batches", 1)
    for batch in (1, 5, 9, 13):  # validations are due behind some, one ends an epoch
        assert stopped(broken, Send(signal.SIGINT, at_batch=batch), **case) == 130
        assert held(broken / "last.ckpt")["global_step"] == -(-(batch + 1) // every)
    resumed, checkpoint = train(broken, **case)
    assert same_weights(resumed, expected)
    assert checkpoint.best_score == reference.best_score
    assert logged_step(resumed) == logged_step(expected)
    if case.get("limit_val_batches") != 0:
        assert validations(broken) == validations(straight)
        assert steps(broken) == steps(straight)  # each of them once


INSIDE = {
    "inside the epoch": {"val_check_interval": 4, "check_val_every_n_epoch": None},
    "at its end": {},
    "epochs counted": {"max_steps": -1, "max_epochs": 4},
}


@pytest.mark.parametrize("name", INSIDE)
def test_stopped_in_a_validation_begins_with_it(tmp_path: Path, name: str) -> None:
    case, average = INSIDE[name], name == "at its end"
    straight, broken = tmp_path / "straight", tmp_path / "broken"

    def also() -> tuple[L.Callback, ...]:
        return (WeightAverage(0.5),) if average else ()

    expected, reference = train(straight, also=also(), every=100, **case)
    first = 4 if case.get("val_check_interval") else 6
    for step in (first, 12):
        send = Send(signal.SIGTERM, in_validation_at_step=step)
        assert stopped(broken, send, also(), every=100, **case) == 143
        assert held(broken / "last.ckpt")["global_step"] == step
    resumed, checkpoint = train(broken, also=also(), every=100, **case)
    assert same_weights(resumed, expected)
    assert checkpoint.best_score == reference.best_score
    assert logged_step(resumed) == logged_step(expected)
    assert steps(broken) == steps(straight)
    assert validations(broken) == validations(straight)


def test_the_last_validation_is_completed(tmp_path: Path) -> None:
    send = Send(signal.SIGINT, in_validation_at_step=5)
    assert stopped(tmp_path, send, max_steps=5, every=100) == 130
    assert held(tmp_path / "best.ckpt")["global_step"] == 5
    assert steps(tmp_path) == [5]


def test_an_evaluation_and_a_sanity_check_break_off(tmp_path: Path) -> None:
    class AtOnce(L.Callback):
        def on_validation_batch_start(self, *args: Any, **kwargs: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    for call in ("validate", "fit"):
        with stop_signals(speaks=False) as stop:
            kept = Checkpoint(tmp_path, 1, "val/score")
            trainer = trainer_for(tmp_path, [AtOnce(), StopOnSignal(stop), kept])
            with pytest.raises(Stopped):
                getattr(trainer, call)(Task(), Data())
    assert not list(tmp_path.iterdir())


def test_outside_a_trainer_the_run_stops_at_once_and_handlers_come_back() -> None:
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


@pytest.mark.parametrize("own", [False, True], ids=["inherited", "of a loader"])
def test_workers_outlive_what_a_terminal_sends_to_all(own: bool) -> None:
    require_fork()
    with stop_signals(speaks=False) as stop:
        child = os.fork()
        if child == 0:
            if own:
                leave_stop_signals(0)
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            if stop.signum is not None:
                os._exit(1)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(2)
        _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM
