"""A picture of a registered pair with its matches, in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.checkpoint import is_dry_run
from pcnn.callbacks.pair import Pair
from pcnn.visualize.registration import overlay_picture


class PairPicture(Callback):
    """Draw the first pair of every validation and test into ``<folder>/predictions.png``.

    It is the same pair each time (evaluation has a fixed order), so that the file shows how the
    descriptors come on: both clouds as given and as registered, and the matches, right ones apart
    from wrong ones. A step returns what `pcnn.callbacks.pair.Pair` takes; None or anything else
    means that there is nothing to draw.

    Args:
        folder: run folder.
        every_n_validations: draw after every n-th validation; the last one before the end of a
            training may then be missed.

    Raises:
        ValueError: `every_n_validations` is below 1.
    """

    def __init__(self, folder: str | Path, every_n_validations: int = 1) -> None:
        super().__init__()
        if every_n_validations < 1:
            raise ValueError(f"every_n_validations must be at least 1, got {every_n_validations}")
        self.path = Path(folder) / "predictions.png"
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._pair: Pair | None = None

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first pair."""
        due = self._validations % self.every_n_validations == 0
        if due and batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            self._pair = None if trainer.sanity_checking else Pair.of(outputs)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw it."""
        if trainer.sanity_checking:
            return
        self._validations += 1
        pair, self._pair = self._pair, None
        if pair is None or is_dry_run(trainer):
            return
        # outside training the weights come from a checkpoint, whatever the trainer counted
        fitting = trainer.state.fn == "fit"
        when = f"step {trainer.global_step}" if fitting else "val"
        data: Any = getattr(trainer, "datamodule", None)
        overlay_picture(
            pair.source,
            pair.target,
            pair.estimate,
            self.path,
            f"{pair.name}   ({when})",
            pair.facts,
            getattr(data, "source_kind", None) == "simulated",
            matches=pair.drawn(hit_distance(pl_module)),
        )


def hit_distance(task: Any) -> float:
    """Residual below which the task calls a match right [m]."""
    return float(task.judge.hit_distance)
