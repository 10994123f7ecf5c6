"""Progress of a training: Lightning's bars on a terminal, a line now and then in a log file."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from pcnn.callbacks.lightning_internals import is_last_batch
from pcnn.messages import say, visible
from pcnn.ranges import Count

# longest time without a line of steps in a log file [s]
QUIET = 30.0

# figures that are shown, in this order, and the words for them
TRAIN = {"train/loss": "loss", "train/miou": "mIoU"}
EVALUATION = {
    "loss": "loss",
    "miou": "mIoU",
    "miou_present": "mIoU (present)",
    "tta/miou": "mIoU (views)",
    "feat_match_ratio": "FMR",
    "inlier_ratio": "IR",
    "rr": "RR",
}


def shown(metrics: dict[str, Any], words: dict[str, str]) -> dict[str, str]:
    """The metrics that are there, by the words for them."""
    return {
        word: f"{float(metrics[key]):.{3 if word == 'loss' else 2}f}"
        for key, word in words.items()
        if key in metrics
    }


class TrainingProgress(TQDMProgressBar):
    """Show how far a training is, with its figures, which are read from the device then only.

    On a terminal Lightning's bars. Elsewhere a line every `every_n_steps` steps, or where these
    take longer than 30 s. A line tells of every evaluation. `terminal` says whether to draw bars;
    None asks standard output.
    """

    def __init__(self, every_n_steps: Count = 25, terminal: bool | None = None) -> None:
        self.terminal = sys.stdout.isatty() if terminal is None else terminal
        super().__init__(refresh_rate=max(every_n_steps // 10, 1) if self.terminal else 0)
        self.every_n_steps = every_n_steps
        self._speaks = True
        self._start = (0.0, 0)  # time and step when this process began to train
        self._told = math.inf  # time of the last line of steps; the first has one of its own
        self._seen_step = 0  # optimiser steps at the end of the batch before

    def disable(self) -> None:
        super().disable()
        self._speaks = False

    def enable(self) -> None:
        super().enable()
        self._speaks = True

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Figures beside a bar."""
        return dict(shown(trainer.callback_metrics, TRAIN))

    def on_train_start(self, trainer: Trainer, *rest: Any) -> None:
        super().on_train_start(trainer, *rest)
        self._start = (time.monotonic(), trainer.global_step)
        self._told, self._seen_step = math.inf, trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, *rest: Any) -> None:
        super().on_train_batch_end(trainer, *rest)
        step = trainer.global_step
        stepped, self._seen_step = step != self._seen_step, step
        if self.terminal or not self._speaks or not stepped:
            return  # gradients are being accumulated
        now = time.monotonic()
        self._told = min(self._told, now)
        due = step % self.every_n_steps == 0 or now - self._told > QUIET
        if due or is_last_batch(trainer):
            self._told = now
            most = trainer.estimated_stepping_batches
            total = None if math.isinf(most) else int(most)  # steps of the whole training
            begun, first = self._start
            seconds = (now - begun) / max(step - first, 1)
            left = f", {duration(seconds * (total - step))} left" if total else ""
            figures = _line(shown(trainer.callback_metrics, TRAIN))
            said = f"step {step}{f'/{total}' if total else ''}"
            self.say(f"{said}  {figures}  {seconds:.2f} s/step{left}")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if not trainer.sanity_checking:
            self._say_evaluation(trainer, "validation", "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        self._say_evaluation(trainer, "test", "test")

    def _say_evaluation(self, trainer: Trainer, name: str, stage: str) -> None:
        words = {f"{stage}/{key}": word for key, word in EVALUATION.items()}
        figures = shown(trainer.callback_metrics, words)
        if figures:
            # outside training the weights come from a checkpoint, whatever the trainer counted
            step = f" at step {trainer.global_step}" if trainer.state.fn == "fit" else ""
            self.say(f"{name}{step}  {_line(figures)}")

    def say(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        if self._speaks and self.terminal:
            Tqdm.write(visible(text))
        elif self._speaks:
            say(text)


def _line(figures: dict[str, str]) -> str:
    """Figures as ``loss 0.412  mIoU 0.35``."""
    return "  ".join(f"{word} {value}" for word, value in figures.items())


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as ``1:02:03`` and ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
