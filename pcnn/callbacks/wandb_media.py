"""Tables, confusion matrices and predicted scans for Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from torch import Tensor

from pcnn.callbacks.scan import Scan
from pcnn.loggers import find
from pcnn.metrics import iou, present
from pcnn.visualize import colourise, palette

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest


class WandbMedia(Callback):
    """Log the IoU table, the confusion matrix and a few predicted scans to W&B.

    Does nothing without a `WandbLogger`. Scans are the first of the first batches of an evaluation,
    always the same ones, thinned class by class to at most 50,000 points, coloured by prediction
    and by truth (W&B's own categories end at 14, so colours are given). Their caption says when the
    data is simulated. A failure of W&B costs the media, never the training.

    A task has `class_names` and, after an evaluation, `confusion[stage]` [C, C + 1]; its steps
    return what `pcnn.callbacks.PredictionPicture` describes.

    Args:
        scans: how many scans an evaluation sends.
        every_n_validations: send after every n-th validation; a test always sends.
    """

    def __init__(self, scans: int = 2, every_n_validations: int = 1) -> None:
        super().__init__()
        if scans < 0 or every_n_validations < 1:
            raise ValueError(
                "scans must be at least 0 and every_n_validations at least 1, got "
                f"{scans} and {every_n_validations}"
            )
        self.scans = scans
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._kept: list[Scan] = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first scan of the first batches."""
        due = self._validations % self.every_n_validations == 0
        if due and not trainer.sanity_checking:
            self._keep(trainer, outputs, batch_idx, dataloader_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first scan of the first batches."""
        self._keep(trainer, outputs, batch_idx, dataloader_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send everything."""
        if not trainer.sanity_checking:
            if self._validations % self.every_n_validations == 0:
                self._send(trainer, pl_module, "val")
            self._validations += 1

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send everything."""
        self._send(trainer, pl_module, "test")

    def _keep(self, trainer: Trainer, outputs: Any, batch_idx: int, dataloader_idx: int) -> None:
        wanted = batch_idx < self.scans and dataloader_idx == 0 and trainer.is_global_zero
        if not wanted or not find(trainer.loggers, WandbLogger):
            return
        scan = Scan.of(outputs)
        if scan is not None:
            self._kept.append(scan.thinned(LIMIT))

    def _send(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        scans, self._kept = self._kept, []
        if not trainer.is_global_zero:
            return
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        task: Any = pl_module
        names: Sequence[str] = task.class_names
        counts: Tensor | None = getattr(task, "confusion", {}).get(stage)
        data: Any = getattr(trainer, "datamodule", None)
        colours = getattr(data, "colors", None)
        table = palette(names) if colours is None else np.asarray(colours, np.uint8)
        source = getattr(data, "source_kind", None)

        def send(logger: WandbLogger) -> None:
            media: dict[str, Any] = {}
            if counts is not None:
                media[f"{stage}/iou_table"] = iou_rows(counts.cpu(), names)
                media[f"{stage}/confusion"] = confusion_chart(counts.cpu(), names, stage)
            for index, scan in enumerate(scans):
                for kind, labels in (("prediction", scan.pred), ("truth", scan.target)):
                    if labels is not None:
                        media[f"{stage}/scan_{index}/{kind}"] = object_3d(
                            scan, labels, table, f"{scan.name}, {kind}", source
                        )
            if media:
                logger.log_metrics(media, step)

        for guard, logger in find(trainer.loggers, WandbLogger):
            guard.guard("log media", partial(send, logger), None)


def iou_rows(counts: Tensor, class_names: Sequence[str]) -> Any:
    """Return a `wandb.Table` of IoU, labelled points and predicted points of every class."""
    import wandb

    classes = counts.shape[0]
    rows = [
        [name, score if here else None, true_points, predicted]
        for name, score, here, true_points, predicted in zip(
            class_names,
            iou(counts).tolist(),
            present(counts).tolist(),
            counts.sum(1).tolist(),
            counts[:, :classes].sum(0).tolist(),
            strict=True,
        )
    ]
    return wandb.Table(columns=["class", "iou", "points", "predicted points"], data=rows)


def confusion_chart(counts: Tensor, class_names: Sequence[str], stage: str) -> Any:
    """Return W&B's confusion matrix chart of counts [C, C + 1]."""
    import wandb

    rows = [
        [truth, predicted, int(counts[i, j])]
        for i, truth in enumerate(class_names)
        for j, predicted in enumerate(class_names)
    ]
    return wandb.plot_table(
        vega_spec_name="wandb/confusion_matrix/v1",
        data_table=wandb.Table(columns=["Actual", "Predicted", "nPredictions"], data=rows),
        fields={"Actual": "Actual", "Predicted": "Predicted", "nPredictions": "nPredictions"},
        string_fields={"title": f"{stage}: points by true and predicted class"},
    )


def object_3d(
    scan: Scan, labels: Any, colours: Any, caption: str, source: str | None = None
) -> Any:
    """Return a `wandb.Object3D` of a scan, coloured by `labels`; the caption tells the source."""
    import wandb

    rows = np.concatenate((scan.points, colourise(labels, colours)), 1, dtype=np.float32)  # [P, 6]
    note = " (SIMULATED)" if source == "simulated" else ""
    return wandb.Object3D(rows, caption=caption + note)
