"""Progress of a training: one bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pcnn.console import Console, duration
from pcnn.lightning_internals import is_last_batch
from pcnn.ranges import Count

# longest time without a line of steps in a log file [s]
QUIET = 30.0

# figures that are shown, in this order, and the words for them
TRAIN = {"train/loss": "loss", "train/miou": "mIoU", "train/accuracy": "accuracy"}
EVALUATION = {
    "loss": "loss",
    "miou": "mIoU",
    "miou_present": "mIoU (present)",
    "tta/miou": "mIoU (views)",
    "mean_accuracy": "mean accuracy",
    "tta/mean_accuracy": "mean accuracy (views)",
    "feat_match_ratio": "FMR",
    "inlier_ratio": "IR",
    "rr": "RR",
}


def format_figures(metrics: dict[str, Any], words: dict[str, str]) -> str:
    """The metrics that are there, as ``loss 0.412  mIoU 0.35``."""
    return "  ".join(
        f"{word} {float(metrics[key]):.{3 if word == 'loss' else 2}f}"
        for key, word in words.items()
        if key in metrics
    )


class TrainingProgress(ProgressBar):
    """Show how far a training is, with its figures, which are read from the device then only.

    On a terminal one bar over all steps with the time left, and a second one while an evaluation
    runs. Elsewhere a line every `every_n_steps` steps, or where these take longer than 30 s, and
    one an evaluation. `terminal` says whether to draw bars; None asks standard output.
    """

    def __init__(self, every_n_steps: Count = 25, terminal: bool | None = None) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self.terminal = sys.stdout.isatty() if terminal is None else terminal
        # None: the console finds standard output when it writes, also when it was redirected
        self._console = Console(soft_wrap=True, highlight=False)
        self._enabled = True
        self._bars: Progress | None = None
        self._training: TaskID | None = None
        self._evaluation: TaskID | None = None
        self._start = (0.0, 0)  # time and step when this process began to train
        self._told = math.inf  # time of the last line of steps; the first has one of its own
        self._seen_step = 0  # optimiser steps at the end of the batch before

    def disable(self) -> None:
        """Say nothing (ranks other than 0)."""
        self._enabled = False

    def enable(self) -> None:
        """Speak again."""
        self._enabled = True

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        """Open the bar."""
        self._start = (time.monotonic(), trainer.global_step)
        self._told, self._seen_step = math.inf, trainer.global_step
        self._training = self._bar("training", total_steps(trainer), trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Move the bar, or print a line."""
        step = trainer.global_step
        stepped, self._seen_step = step != self._seen_step, step
        if not self._enabled or not stepped:
            return  # gradients are being accumulated
        last, now = is_last_batch(trainer), time.monotonic()
        if self._bars is not None and self._training is not None:
            self._bars.update(self._training, completed=step)
            if last or step % max(self.every_n_steps // 10, 1) == 0:
                figures = format_figures(trainer.callback_metrics, TRAIN)
                self._bars.update(self._training, figures=figures)
            return
        self._told = min(self._told, now)
        if last or step % self.every_n_steps == 0 or now - self._told > QUIET:
            self._told, total = now, total_steps(trainer)
            figures = format_figures(trainer.callback_metrics, TRAIN)
            self.say(f"step {step}{f'/{total}' if total else ''}  {figures}  {self._pace(trainer)}")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open a second bar."""
        if not trainer.sanity_checking:
            self._evaluation = self._bar("validation", self.total_val_batches)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open a bar."""
        self._evaluation = self._bar("test", sum(trainer.num_test_batches))

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Move it."""
        if self._bars is not None and self._evaluation is not None:
            self._bars.advance(self._evaluation)

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the figures."""
        if not trainer.sanity_checking:
            self._end_evaluation(trainer, "validation", "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the figures."""
        self._end_evaluation(trainer, "test", "test")
        self.close()

    def close(self, *_: Any, **__: Any) -> None:
        """Close the bars, so that an error stands on a clean line."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = self._training = self._evaluation = None

    on_train_end = on_exception = teardown = close

    def _end_evaluation(self, trainer: Trainer, name: str, stage: str) -> None:
        if self._bars is not None and self._evaluation is not None:
            self._bars.remove_task(self._evaluation)
        self._evaluation = None
        words = {f"{stage}/{key}": word for key, word in EVALUATION.items()}
        figures = format_figures(trainer.callback_metrics, words)
        if figures:
            # outside training the weights come from a checkpoint, whatever the trainer counted
            step = f" at step {trainer.global_step}" if trainer.state.fn == "fit" else ""
            self.say(f"{name}{step}  {figures}")

    def _pace(self, trainer: Trainer) -> str:
        begun, first = self._start
        step, total = trainer.global_step, total_steps(trainer)
        seconds = (time.monotonic() - begun) / max(step - first, 1)
        left = f", {duration(seconds * (total - step))} left" if total else ""
        return f"{seconds:.2f} s/step{left}"

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        if self._enabled:
            (self._bars.console if self._bars is not None else self._console).print(text)

    @contextmanager
    def work(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar for a piece of work within the run, or a line as it begins; yields its advance."""
        opened = self._bars is None
        bar = self._bar(name, total)
        if bar is None or self._bars is None:
            self.say(f"{name}: {total}")
            yield lambda: None
            return
        bars = self._bars
        try:
            yield lambda: bars.advance(bar)
        finally:
            bars.remove_task(bar)
            if opened:
                self.close()

    def _bar(self, name: str, total: float | None, completed: int = 0) -> TaskID | None:
        """A new bar on a terminal."""
        if not (self._enabled and self.terminal):
            return None
        if self._bars is None:
            columns = MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
            self._bars = Progress(
                *(TextColumn("{task.description}"), BarColumn(bar_width=None), *columns),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
                refresh_per_second=4,
                expand=True,
            )
            self._bars.start()
        count = None if total is None or math.isinf(total) else int(total)
        return self._bars.add_task(name, total=count, completed=completed, figures="")


def total_steps(trainer: Trainer) -> int | None:
    """The optimiser steps of the whole training, None when it has no end."""
    total = trainer.estimated_stepping_batches
    return None if math.isinf(total) else int(total)
