"""Lightning's private members: every use of one stands here, in a function of this file."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.profilers import PassThroughProfiler
from torch import Tensor


def is_dry_run(trainer: Trainer) -> bool:
    """True where the trainer runs a few batches for show (`fast_dev_run`) and leaves no files."""
    return bool(trainer.fast_dev_run)  # type: ignore[attr-defined]  # set where mypy cannot see it


def is_end_of_epoch(trainer: Trainer) -> bool:
    """True where an epoch ends behind this batch."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    return bool(progress.is_last_batch or progress.current.ready == trainer.num_training_batches)


def is_last_batch(trainer: Trainer) -> bool:
    """True where training ends behind this batch: by its steps, its epochs, or its time."""
    loop = trainer.fit_loop
    if trainer.should_stop or (loop.max_steps != -1 and trainer.global_step >= loop.max_steps):
        return True
    if loop.max_epochs is None or loop.max_epochs == -1:
        return False
    epochs: Any = loop.epoch_progress.current  # counts this one when it is over
    return is_end_of_epoch(trainer) and epochs.processed + 1 >= loop.max_epochs


def is_validation_due(trainer: Trainer) -> bool:
    """True where the interval of validations ends at this batch, wherever training ends."""
    loop = trainer.fit_loop
    if loop._data_fetcher is None:
        return False
    stop, trainer.should_stop = trainer.should_stop, False
    due = loop.epoch_loop._should_check_val_fx(loop._data_fetcher)
    trainer.should_stop = stop
    return due


def logged_step(trainer: Trainer) -> int:
    """The step that Lightning's own figures are logged under, behind a step of the optimiser."""
    return trainer.global_step - int(trainer.state.fn == "fit")


def log_step(trainer: Trainer) -> None:
    """Log the figures of the step that has just ended, which a kill behind its state would lose.

    Lightning then logs them once more, which `RunCSVLogger` passes over.
    """
    trainer._logger_connector.update_train_step_metrics()


def log_again(trainer: Trainer, name: str, value: Tensor) -> bool:
    """Log a figure of a training step as the step before did; False: that did not.

    `LightningModule.log` takes longer than most of a step to find out that nothing has changed.
    """
    connector, results = trainer._logger_connector, trainer._results
    figure: Any = None if results is None else results.get(f"training_step.{name}")
    if figure is None or figure.has_reset or connector._first_loop_iter is not False:
        return False
    figure.forward(value, 1)
    connector._current_fx = "training_step"
    return True


class _Unwatched(PassThroughProfiler):
    """Lightning's profiler that does nothing, at less cost: a step enters it 150 times."""

    def profile(self, action_name: str) -> AbstractContextManager[str]:  # type: ignore[override]
        return nullcontext(action_name)


def leave_unwatched(trainer: Trainer) -> None:
    """Take the time of a profiler that does nothing out of the steps."""
    if type(trainer.profiler) is PassThroughProfiler:  # type: ignore[attr-defined]
        trainer.profiler = _Unwatched()  # type: ignore[attr-defined]


def close_epoch(trainer: Trainer) -> None:
    """Count the epoch and step that a training ended in, also where it was resumed behind it."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    epochs.processed = epochs.completed = epochs.ready
    trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step


def agree_by_callback(trainer: Trainer) -> None:
    """Leave it to a callback that ranks stop at one step; Lightning would wait in every batch."""
    loop = trainer.fit_loop.epoch_loop
    loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
