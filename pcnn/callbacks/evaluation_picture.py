"""One picture of every evaluation, of the first thing in it."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.checkpoint import is_dry_run

T = TypeVar("T")


class EvaluationPicture(Callback, Generic[T]):
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

    def __init__(self, folder: str | Path, every_n_validations: int = 1) -> None:
        super().__init__()
        if every_n_validations < 1:
            raise ValueError(f"every_n_validations must be at least 1, got {every_n_validations}")
        self.path = Path(folder) / "predictions.png"
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._first: T | None = None

    @abstractmethod
    def taken(self, outputs: Any) -> T | None:
        """What is drawn, on the host; None when a step's outputs hold nothing to draw."""

    @abstractmethod
    def draw(self, first: T, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw it into `path`; `data` is the data module, `when` a note for the title."""

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first one."""
        due = self._validations % self.every_n_validations == 0
        if due and batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            self._first = None if trainer.sanity_checking else self.taken(outputs)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first one."""
        if batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            self._first = self.taken(outputs)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw it."""
        if not trainer.sanity_checking:
            self._validations += 1
            # outside training the weights come from a checkpoint, whatever the trainer counted
            fitting = trainer.state.fn == "fit"
            self._write(trainer, pl_module, f"step {trainer.global_step}" if fitting else "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw it."""
        self._write(trainer, pl_module, "test")

    def _write(self, trainer: Trainer, pl_module: LightningModule, when: str) -> None:
        first, self._first = self._first, None
        if first is not None and not is_dry_run(trainer):
            self.draw(first, pl_module, getattr(trainer, "datamodule", None), when)
