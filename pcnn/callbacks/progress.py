"""Progress of a training: one bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar, Timer
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
        self._train_bar: TaskID | None = None
        self._eval_bar: TaskID | None = None
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
        if self._enabled and self.terminal:
            total = total_steps(trainer)
            self._train_bar = self._open().add_task(
                "training", total=total, completed=trainer.global_step, figures=""
            )

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Move the bar, or print a line."""
        step = trainer.global_step
        stepped, self._seen_step = step != self._seen_step, step
        if not self._enabled or not stepped:
            return  # gradients are being accumulated
        last, now = is_last_batch(trainer), time.monotonic()
        if self._bars is not None and self._train_bar is not None:
            self._bars.update(self._train_bar, completed=step)
            if last or step % max(self.every_n_steps // 10, 1) == 0:
                figures = format_figures(trainer.callback_metrics, TRAIN)
                self._bars.update(self._train_bar, figures=figures)
            return
        self._told = min(self._told, now)
        if last or step % self.every_n_steps == 0 or now - self._told > QUIET:
            self._told, total = now, total_steps(trainer)
            figures = format_figures(trainer.callback_metrics, TRAIN)
            self.say(f"step {step}{f'/{total}' if total else ''}  {figures}  {self._pace(trainer)}")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open a second bar."""
        if not trainer.sanity_checking:
            self._begin_evaluation("validation", self.total_val_batches)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open a bar."""
        self._begin_evaluation("test", sum(trainer.num_test_batches))

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Move it."""
        if self._bars is not None and self._eval_bar is not None:
            self._bars.advance(self._eval_bar)

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the figures."""
        if not trainer.sanity_checking:
            self._end_evaluation(trainer, "validation", "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the figures."""
        self._end_evaluation(trainer, "test", "test")
        self._close()

    def on_train_end(self, *_: Any) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, *_: Any) -> None:
        """Close the bar, so that the error stands on a clean line."""
        self._close()

    def teardown(self, *_: Any, **__: Any) -> None:
        """Close the bar."""
        self._close()

    def _begin_evaluation(self, name: str, total: float) -> None:
        if self._enabled and self.terminal:
            count = None if math.isinf(total) else int(total)
            self._eval_bar = (self._bars or self._open()).add_task(name, total=count, figures="")

    def _end_evaluation(self, trainer: Trainer, name: str, stage: str) -> None:
        if self._bars is not None and self._eval_bar is not None:
            self._bars.remove_task(self._eval_bar)
            self._eval_bar = None
        words = {f"{stage}/{key}": word for key, word in EVALUATION.items()}
        figures = format_figures(trainer.callback_metrics, words)
        if figures:
            # outside training the weights come from a checkpoint, whatever the trainer counted
            step = f" at step {trainer.global_step}" if trainer.state.fn == "fit" else ""
            self.say(f"{name}{step}  {figures}")

    def _pace(self, trainer: Trainer) -> str:
        begun, first = self._start
        step, total = trainer.global_step, total_steps(trainer)
        callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set where mypy cannot see it
        timer = next((each for each in callbacks if isinstance(each, Timer)), None)
        seconds = (time.monotonic() - begun) / max(step - first, 1)
        left = math.inf if total is None else seconds * (total - step)
        limit = timer.time_remaining() if timer is not None else None
        if limit is not None and limit < left:  # the steps will not all be taken
            return f"{seconds:.2f} s/step, {duration(max(limit, 0.0))} left of max_time"
        return f"{seconds:.2f} s/step" + (f", {duration(left)} left" if total else "")

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        if self._enabled:
            (self._bars.console if self._bars is not None else self._console).print(text)

    @contextmanager
    def work(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar for a piece of work within the run, or a line as it begins; yields its advance."""
        if not (self._enabled and self.terminal):
            self.say(f"{name}: {total}")
            yield lambda: None
            return
        opened = self._bars is None
        bars = self._bars or self._open()
        bar = bars.add_task(name, total=total, figures="")
        try:
            yield lambda: bars.advance(bar)
        finally:
            bars.remove_task(bar)
            if opened:
                self._close()

    def _open(self) -> Progress:
        columns = MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        self._bars = Progress(
            *(TextColumn("{task.description}"), BarColumn(bar_width=None), *columns),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            refresh_per_second=4,
            expand=True,
        )
        self._bars.start()
        return self._bars

    def _close(self) -> None:
        if self._bars is not None:
            self._bars.stop()
        self._bars = self._train_bar = self._eval_bar = None


def total_steps(trainer: Trainer) -> int | None:
    """The optimiser steps of the whole training, None when it has no end."""
    total = trainer.estimated_stepping_batches
    return None if math.isinf(total) else int(total)
