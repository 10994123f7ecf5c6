"""A picture of a predicted scan beside the truth, in the run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pcnn.callbacks.checkpoint import is_dry_run
from pcnn.callbacks.scan import Scan
from pcnn.visualize import segmentation_picture


class PredictionPicture(Callback):
    """Draw the first scan of every validation and test into ``<folder>/predictions.png``.

    It is the same scan each time (evaluation has a fixed order), so that the file shows how the
    network comes on. A validation or test step returns a dict with `points` [P, 3], `pred` [P],
    `target` [P] or None and `name`; None or anything else means that there is nothing to draw. The
    data module's `source_kind` (``real`` or ``simulated``) and `colors` are used where it has them.

    Args:
        folder: run folder.
        every_n_validations: draw after every n-th validation; the last one before the end of a
            training may then be missed, a test is always drawn.
    """

    def __init__(self, folder: str | Path, every_n_validations: int = 1) -> None:
        super().__init__()
        if every_n_validations < 1:
            raise ValueError(f"every_n_validations must be at least 1, got {every_n_validations}")
        self.path = Path(folder) / "predictions.png"
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._scan: Scan | None = None

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first scan."""
        due = self._validations % self.every_n_validations == 0
        if due and batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            self._scan = None if trainer.sanity_checking else Scan.of(outputs)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first scan."""
        if batch_idx == dataloader_idx == 0 and trainer.is_global_zero:
            self._scan = Scan.of(outputs)

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
        scan, self._scan = self._scan, None
        if scan is None or is_dry_run(trainer):
            return
        data: Any = getattr(trainer, "datamodule", None)
        task: Any = pl_module
        segmentation_picture(
            scan.points,
            scan.target,
            scan.pred,
            task.class_names,
            getattr(data, "colors", None),
            self.path,
            f"{scan.name}   ({when})",
            source=getattr(data, "source_kind", None),
        )
