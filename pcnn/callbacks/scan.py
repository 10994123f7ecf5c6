"""A predicted scan, as pictures and W&B show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Scan:
    """A scan on the host."""

    points: NDArray[np.float32]  # [P, 3] [m]
    pred: NDArray[np.int64]  # [P] class ids
    target: NDArray[np.int64] | None  # [P] class ids or the ignored id
    name: str

    @classmethod
    def of(cls, outputs: dict[str, Any]) -> Scan | None:
        """The scan in a step's outputs; None when there is none."""
        if not {"points", "pred"} <= set(outputs):
            return None
        target = outputs.get("target")
        return cls(
            points=outputs["points"].detach().float().cpu().numpy(),
            pred=outputs["pred"].detach().long().cpu().numpy(),
            target=None if target is None else target.detach().long().cpu().numpy(),
            name=str(outputs.get("name", "scan")),
        )

    def draw(self, path: Path, class_names: Sequence[str], data: Any, when: str) -> None:
        """Draw prediction, truth and mistakes."""
        from pcnn.visualize.segmentation import segmentation_picture

        segmentation_picture(
            self.points,
            self.target,
            self.pred,
            class_names,
            getattr(data, "colors", None),
            path,
            f"{self.name}   ({when})",
            source=getattr(data, "source_kind", None),
        )

    def thinned(self, limit: int) -> Scan:
        """At most `limit` points, rare classes kept before common ones; the same each time.

        Every class (of the truth, or of the prediction where there is none) keeps all its points up
        to a quota, the largest for which the sum stays within `limit`.
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
        target = None if self.target is None else self.target[keep]
        return Scan(self.points[keep], self.pred[keep], target, self.name)
