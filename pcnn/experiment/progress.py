"""One bar for the whole training: steps done, time left, loss and running mIoU."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.utilities import rank_zero_only
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

NAMES = {"train/loss": "loss", "train/miou": "mIoU"}
LINES = 10  # in a log file: this many lines a training


class StepProgress(ProgressBar):
    """Progress in optimiser steps, of training and of every pass over an evaluation set.

    On a terminal a live bar; elsewhere (a log file, CI) a line every tenth of the training.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown = True
        self.console = Console()
        self.progress: Progress | None = None
        self.training: TaskID | None = None
        self.evaluating: TaskID | None = None

    def disable(self) -> None:
        """Show nothing (ranks above 0)."""
        self.shown = False

    def enable(self) -> None:
        """Show progress again."""
        self.shown = True

    def start(self) -> Progress:
        """The live display, begun when it is first needed."""
        if self.progress is None:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self.console,
                disable=not (self.shown and self.console.is_terminal),
            )
            self.progress.start()
        return self.progress

    def stop(self) -> None:
        """End the live display; what was shown stays."""
        if self.progress is not None:
            self.progress.stop()
        self.progress = self.training = self.evaluating = None

    @rank_zero_only
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the bar where the training begins, also after a restart."""
        steps = trainer.estimated_stepping_batches
        self.training = self.start().add_task(
            "training", total=steps, completed=trainer.global_step, figures=""
        )

    @rank_zero_only
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Advance; figures are read from the device as often as they are logged."""
        step, every = trainer.global_step, getattr(trainer, "log_every_n_steps", 1)
        if self.training is None or not self.shown:
            return
        progress = self.start()
        progress.update(self.training, completed=step)
        if step % max(1, every) == 0:
            progress.update(self.training, figures=figures(trainer))
        total = int(trainer.estimated_stepping_batches)
        if not self.console.is_terminal and step % max(1, total // LINES) == 0:
            self.console.print(f"step {step}/{total}  {figures(trainer)}", highlight=False)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End the display."""
        self.stop()

    def on_exception(
        self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException
    ) -> None:
        """Leave the terminal in order."""
        self.stop()

    @rank_zero_only
    def begin_evaluation(self, name: str, batches: Any) -> None:
        """Show a bar below the training's."""
        total = sum(batches) if isinstance(batches, list) else batches
        self.evaluating = self.start().add_task(name, total=total, figures="")

    @rank_zero_only
    def advance_evaluation(self) -> None:
        """One batch more."""
        if self.progress is not None and self.evaluating is not None:
            self.progress.advance(self.evaluating)

    @rank_zero_only
    def end_evaluation(self, trainer: L.Trainer) -> None:
        """Take the bar away again."""
        if self.progress is not None and self.evaluating is not None:
            self.progress.remove_task(self.evaluating)
            self.evaluating = None
        if self.training is None:
            self.stop()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin."""
        self.begin_evaluation("validation", trainer.num_val_batches)

    def on_validation_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Advance."""
        self.advance_evaluation()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End."""
        self.end_evaluation(trainer)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin."""
        self.begin_evaluation("test", trainer.num_test_batches)

    def on_test_batch_end(self, *args: Any, **kwargs: Any) -> None:
        """Advance."""
        self.advance_evaluation()

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End."""
        self.end_evaluation(trainer)


def figures(trainer: L.Trainer) -> str:
    """Loss and running mIoU as last logged, and the latest validation's."""
    shown = [
        f"{short} {float(trainer.callback_metrics[name]):.3f}"
        for name, short in {**NAMES, "val/miou_present": "val mIoU"}.items()
        if name in trainer.callback_metrics
    ]
    return "  ".join(shown)
