"""Ctrl-C, SIGTERM and a scheduler's SIGUSR1 end a run where a resumed one goes on exactly."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.checkpoint import Checkpoint, Stopped
from pcnn.callbacks.lightning_internals import agree_by_callback, is_last_batch
from pcnn.ranges import Count

#: Signals by which a scheduler says that it will take the machine away, and give another one.
PREEMPTION: dict[int, str] = {signal.SIGUSR1: "SIGUSR1", signal.SIGUSR2: "SIGUSR2"}
NAMES: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", **PREEMPTION}
TWICE = 0.5  # [s] `timeout`, `torchrun` and other launchers send one signal twice
#: Steps, or batches of an evaluation, after which ranks ask each other whether one got a signal.
EVERY = 10


class StopSignals:
    """Handle SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 of this process.

    The first signal ends the process at the next boundary while `deferring` (a callback says where
    that is), else at once, by raising `Stopped`. The second one has the system's own effect: the
    process is gone at once. Files are written whole, so that loses no more than a power cut does.

    Processes forked from this one ignore Ctrl-C, which a terminal sends to all of them, and their
    first SIGTERM, which a cluster's scheduler does: this process still needs them to get to the
    boundary, and ends them itself.
    """

    def __init__(self, speaks: bool = True) -> None:
        self.signum: int | None = None
        self.deferring = False
        self._came = 0.0  # when
        self._speaks = speaks
        self._process = os.getpid()
        # a shell's background jobs ignore Ctrl-C, which is meant for others
        self._ours = [each for each in NAMES if signal.getsignal(each) != signal.SIG_IGN]

    def install(self) -> None:
        """Take the signals, also from a handler that another library has set since."""
        if self.signum is None and threading.current_thread() is threading.main_thread():
            for signum in self._ours:
                signal.signal(signum, self._receive)

    def take(self, signum: int) -> None:
        """End at the next boundary for a signal that another process got."""
        if self.signum is None:
            self.signum, self._came = signum, time.monotonic()

    def check(self) -> None:
        """End here when a signal has come."""
        if self.signum is not None:
            raise Stopped(self.signum)

    def _receive(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            if signum == signal.SIGTERM:
                signal.signal(signum, signal.SIG_DFL)
            return
        if self.signum is not None:
            if signum not in PREEMPTION and time.monotonic() - self._came > TWICE:
                signal.signal(signum, signal.SIG_DFL)
                os.kill(self._process, signum)
            return
        self.signum, self._came = signum, time.monotonic()
        if not self.deferring:
            raise Stopped(signum)
        if self._speaks:
            name = NAMES[signum]
            more = "" if signum in PREEMPTION else f"; a second {name} stops at once"
            line = f"\n{name}: stopping when this step is done{more}\n"
            # print is not safe in a signal handler
            os.write(2, line.encode())


@contextmanager
def stop_signals(speaks: bool = True) -> Iterator[StopSignals]:
    """Handle signals inside the block, and leave the handlers as they were behind it."""
    before = {signum: signal.getsignal(signum) for signum in NAMES}
    stop = StopSignals(speaks)
    stop.install()
    try:
        yield stop
    finally:
        if threading.current_thread() is threading.main_thread():
            for signum, handler in before.items():
                signal.signal(signum, handler)


class StopOnSignal(Callback):
    """End a training or an evaluation behind the step in which a signal came.

    A training writes `last.ckpt` behind that step, and goes on exactly when it is resumed; where a
    validation is due there, or under way, it goes on from the checkpoint before. The last
    validation of a training is not broken off. Several ranks stop at the same step: they agree
    every `every` steps. It must be the last callback but the checkpoint: what others do at the end
    of a step is part of the state.
    """

    def __init__(self, stop: StopSignals, every: Count = EVERY) -> None:
        super().__init__()
        self.stop, self.every = stop, every
        self._seen_step = 0  # optimiser steps at the end of the batch before
        self._saved = False  # the state is written, and the step's figures are being logged

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals back from Lightning, whose handler talks to other ranks at any time."""
        self._begin()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals back."""
        self._seen_step, self._saved = trainer.global_step, False
        agree_by_callback(trainer)
        self._begin()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop in front of it, or take the signals back."""
        self._end_if_saved()
        self._begin()

    on_test_start = on_sanity_check_start

    def on_train_batch_start(self, *_: Any) -> None:
        """Stop in front of the next step."""
        self._end_if_saved()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Write the state that the resumed run goes on from."""
        step = trainer.global_step
        stepped, self._seen_step = step != self._seen_step, step
        # gradients that are still being accumulated are in no checkpoint
        if not stepped:
            return
        last = is_last_batch(trainer)
        if self._agreed(trainer, last or step % self.every == 0) and not last:
            for each in trainer.callbacks:  # type: ignore[attr-defined]  # set out of mypy's sight
                if isinstance(each, Checkpoint):
                    each.save_for_stop(trainer)
            self._saved = True

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Break off, unless training is over and this is its last validation."""
        last = trainer.state.fn == "fit" and not trainer.sanity_checking and is_last_batch(trainer)
        if not last and self._agreed(trainer, batch_idx % self.every == 0):
            self.stop.check()

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let an evaluation on several ranks end on all of them for a signal to one."""
        if trainer.state.fn != "fit" and self._agreed(trainer, True):
            self.stop.check()

    on_test_end = on_validation_end

    def teardown(self, *_: Any, **__: Any) -> None:
        """No boundary follows."""
        self.stop.deferring = False

    def on_exception(self, *_: Any) -> None:
        """No boundary follows."""
        self.stop.deferring = False

    def _begin(self) -> None:
        self.stop.install()
        self.stop.deferring = True

    def _end_if_saved(self) -> None:
        if self._saved:
            self.stop.check()

    def _agreed(self, trainer: Trainer, asks: bool) -> bool:
        """True where a signal came, to any rank where these ask each other now."""
        if trainer.received_sigterm:  # by Lightning's handler
            self.stop.take(signal.SIGTERM)
        came = self.stop.signum is not None
        if trainer.world_size > 1:
            came = asks and trainer.strategy.reduce_boolean_decision(came, all=False)
            if came:
                self.stop.take(signal.SIGTERM)
        return came
