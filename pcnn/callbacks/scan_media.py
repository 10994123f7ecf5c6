"""Predicted scans: a picture in the run folder, and what Weights & Biases shows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule
from numpy.typing import NDArray
from torch import Tensor

from pcnn.callbacks.evaluation_preview import LIMIT, EvaluationMedia, EvaluationPicture, Media
from pcnn.metrics import iou, present
from pcnn.ranges import Count, Natural
from pcnn.visualize import colourise, palette, segmentation_picture


@dataclass(frozen=True)
class Scan:
    """A scan on the host."""

    points: NDArray[np.float32]  # [P, 3] [m]
    pred: NDArray[np.int64]  # [P] class ids
    target: NDArray[np.int64] | None  # [P] class ids or the ignored id
    name: str

    @classmethod
    def of(cls, outputs: Any) -> Scan | None:
        """Take the scan out of a step's outputs, to the host; None when there is none."""
        if not isinstance(outputs, dict) or not {"points", "pred"} <= set(outputs):
            return None
        target = outputs.get("target")
        return cls(
            points=outputs["points"].detach().float().cpu().numpy(),
            pred=outputs["pred"].detach().long().cpu().numpy(),
            target=None if target is None else target.detach().long().cpu().numpy(),
            name=str(outputs.get("name", "scan")),
        )

    def thinned(self, limit: int) -> Scan:
        """Return at most `limit` points, rare classes kept before common ones.

        Every class (of the truth, or of the prediction where there is none) keeps all its points up
        to a quota, the largest for which the sum stays within `limit`. Which points of a class stay
        is drawn from a generator of its own, the same for the same scan.
        """
        if len(self.points) <= limit:
            return self
        labels = self.pred if self.target is None else self.target
        _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        low, high = 0, int(counts.max())  # bisect for the quota
        while low < high:
            quota = (low + high + 1) // 2
            low, high = (
                (quota, high) if np.minimum(counts, quota).sum() <= limit else (low, quota - 1)
            )
        order = np.random.default_rng(len(labels)).permutation(len(labels))
        by_class = order[np.argsort(inverse[order], kind="stable")]
        first = np.cumsum(counts) - counts
        rank = np.arange(len(labels)) - first.repeat(counts)  # of a point within its class
        keep = np.sort(by_class[rank < low])
        return Scan(
            points=self.points[keep],
            pred=self.pred[keep],
            target=None if self.target is None else self.target[keep],
            name=self.name,
        )


class PredictionPicture(EvaluationPicture[Scan]):
    """Draw the first scan of every validation and test into ``<folder>/predictions.png``.

    A validation or test step returns a dict with `points` [P, 3], `pred` [P], `target` [P] or None
    and `name`; None or anything else means that there is nothing to draw. The data module's
    `source_kind` (``real`` or ``simulated``) and `colors` are used where it has them. Arguments as
    in `EvaluationPicture`.
    """

    def taken(self, outputs: Any) -> Scan | None:
        """The scan in a step's outputs."""
        return Scan.of(outputs)

    def draw(self, first: Scan, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw prediction, truth and mistakes."""
        task: Any = pl_module
        segmentation_picture(
            first.points,
            first.target,
            first.pred,
            task.class_names,
            getattr(data, "colors", None),
            self.path,
            f"{first.name}   ({when})",
            source=getattr(data, "source_kind", None),
        )


class WandbMedia(EvaluationMedia[Scan]):
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
