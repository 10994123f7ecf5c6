"""W&B's table of IoUs, its confusion matrix and predicted scans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule
from torch import Tensor

from pcnn.callbacks.evaluation_preview import LIMIT, EvaluationMedia, Media
from pcnn.callbacks.scan_picture import Scan
from pcnn.metrics import iou, present
from pcnn.ranges import Count, Natural
from pcnn.visualize import colourise, palette


class WandbMedia(EvaluationMedia[Scan]):
    """Log the IoU table, the confusion matrix and a few predicted scans to W&B.

    Does nothing without a `WandbLogger`. Scans are the first of the first batches of an evaluation,
    always the same ones, thinned class by class to at most 50,000 points, coloured by prediction
    and by truth (W&B's own categories end at 14, so colours are given). Their caption says when the
    data is simulated. A failure of W&B costs the media, never the training.

    A task has `class_names` and, after an evaluation, `confusion[stage]` [C, C + 1]; its steps
    return what `pcnn.callbacks.PredictionPicture` describes.
    """

    def __init__(self, scans: Natural = 2, every_n_validations: Count = 1) -> None:
        super().__init__(scans, every_n_validations, "scans")

    def taken(self, outputs: Any) -> Scan | None:
        """The thinned scan in a step's outputs."""
        scan = Scan.of(outputs)
        return None if scan is None else scan.thinned(LIMIT)

    def media(
        self, kept: Sequence[Scan], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """The table, the confusion matrix, and every scan by prediction and by truth."""
        task: Any = pl_module
        names: Sequence[str] = task.class_names
        counts: Tensor | None = getattr(task, "confusion", {}).get(stage)
        colours = getattr(data, "colors", None)
        table = palette(names) if colours is None else np.asarray(colours, np.uint8)
        source = getattr(data, "source_kind", None)

        def made() -> Media:
            media: Media = {}
            if counts is not None:
                media[f"{stage}/iou_table"] = iou_table_of(counts.cpu(), names)
                media[f"{stage}/confusion"] = confusion_chart(counts.cpu(), names, stage)
            for index, scan in enumerate(kept):
                for kind, labels in (("prediction", scan.pred), ("truth", scan.target)):
                    if labels is not None:
                        media[f"{stage}/scan_{index}/{kind}"] = object_3d(
                            scan, labels, table, f"{scan.name}, {kind}", source
                        )
            return media

        return made


def iou_table_of(counts: Tensor, class_names: Sequence[str]) -> Any:
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
