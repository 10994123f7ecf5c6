"""A picture of a predicted scan beside the truth, in the run folder."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule

from pcnn.callbacks.evaluation_picture import EvaluationPicture
from pcnn.callbacks.scan import Scan
from pcnn.visualize import segmentation_picture


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
