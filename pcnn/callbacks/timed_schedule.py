"""Where time ends a training before its steps do, rates come down in time."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Timer

from pcnn.callbacks.agreement import Agreement
from pcnn.lightning_internals import end_by
from pcnn.ranges import Natural


def timer_of(trainer: Trainer) -> Timer | None:
    """The callback that ends a training at `trainer.max_time`, or None."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set where mypy cannot see it
    return next((each for each in callbacks if isinstance(each, Timer)), None)


class TimedSchedule(Callback):
    """Let the schedule of the rates run ahead of the steps, where `trainer.max_time` ends first.

    A schedule is made for all steps of a run. On a machine too slow for them the run would end with
    its rate still high, which costs more than the steps that are missing. After every step the
    schedule is brought to at least ``begun + (total - begun) * (t - t0) / (limit - t0)``. Here t is
    the time of training so far, limit `trainer.max_time`, and (t0, begun) are time and schedule
    after the first `settle` steps, which are slow for reasons of their own. A run that is quick
    enough, or has no time limit, keeps its schedule step by step. On several ranks all follow the
    clock of the first, one step later, so that none waits for it; so does the end of the training.
    """

    def __init__(self, settle: Natural = 20) -> None:
        super().__init__()
        if settle < 1:
            raise ValueError(f"settle must be at least 1 step, got {settle}")
        self.settle = settle
        self._first = 0  # steps that were done when this training began
        self._from: tuple[float, int] | None = None  # seconds and steps of the schedule
        self._total = 0  # steps of the whole schedule
        self._agreements: list[Agreement] = []  # one a schedule

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin from here, also where a run goes on."""
        self._first, self._from = trainer.global_step, None
        self._total = int(trainer.estimated_stepping_batches)
        self._agreements = [Agreement() for _ in trainer.lr_scheduler_configs]
        timer = timer_of(trainer)
        if timer is not None and trainer.world_size > 1:
            end_by(timer, Agreement().ask)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Bring the schedule to where time is."""
        timer = timer_of(trainer)
        remaining = None if timer is None else timer.time_remaining()
        if timer is None or remaining is None or trainer.global_step < self._first + self.settle:
            return
        elapsed = timer.time_elapsed()
        for place, config in enumerate(trainer.lr_scheduler_configs):
            schedule = config.scheduler
            done = schedule.last_epoch  # type: ignore[union-attr]
            if self._from is None:
                self._from = elapsed, done
            start, begun = self._from
            share = (elapsed - start) / max(elapsed + remaining - start, 1e-9)
            due = begun + int((self._total - begun) * min(share, 1.0))
            if trainer.world_size > 1:
                due = self._agreements[place].ask(due if trainer.is_global_zero else 0)
            for _ in range(min(due, self._total - 1) - done):
                schedule.step()  # type: ignore[call-arg]
