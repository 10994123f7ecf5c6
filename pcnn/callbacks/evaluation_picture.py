"""One picture of every evaluation, of the first thing in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from pcnn.callbacks.checkpoint import is_dry_run
from pcnn.callbacks.evaluation_preview import EvaluationPreview, T
from pcnn.ranges import Count


class EvaluationPicture(EvaluationPreview[T]):
    """Draw what the first step of a validation or test returns into ``<folder>/predictions.png``.

    It is the same scan or pair each time (evaluation has a fixed order), so that the file shows how
    the network comes on. Subclasses say what they take out of a step's outputs, and draw it.

    Args:
        folder: run folder.
        every_n_validations: draw after every n-th validation; the last one before the end of a
            training may then be missed, a test is always drawn.

    Raises:
        ValueError: `every_n_validations` is below 1.
    """

    def __init__(self, folder: str | Path, every_n_validations: Count = 1) -> None:
        super().__init__(1, every_n_validations, "pictures")
        self.path = Path(folder) / "predictions.png"

    @abstractmethod
    def draw(self, first: T, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw it into `path`; `data` is the data module, `when` a note for the title."""

    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Draw the first one, if there is any."""
        if kept and not is_dry_run(trainer):
            # outside training the weights come from a checkpoint, whatever the trainer counted
            fitting = trainer.state.fn == "fit"
            when = f"step {trainer.global_step}" if fitting else stage
            self.draw(kept[0], pl_module, getattr(trainer, "datamodule", None), when)
