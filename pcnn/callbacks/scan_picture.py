"""Predicted scans, and their picture in the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule
from numpy.typing import NDArray

from pcnn.callbacks.evaluation_preview import EvaluationPicture
from pcnn.visualize.segmentation import segmentation_picture
from pcnn.visualize.view import View, ViewedCloud


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

    def view(self, first: Scan, pl_module: LightningModule, data: Any, when: str) -> View | None:
        """The scan with prediction, truth and mistakes."""
        if not np.isfinite(first.points).all() or not len(first.points):
            return None
        task: Any = pl_module
        labels = {"prediction": first.pred}
        if first.target is not None:
            labels["truth"] = first.target
        simulated = getattr(data, "source_kind", None) == "simulated"
        return View(
            [ViewedCloud(first.name, first.points, labels=labels, simulated=simulated)],
            task.class_names,
            getattr(data, "colors", None),
            title=f"{first.name} ({when})",
            points=self.view_points,
        )
