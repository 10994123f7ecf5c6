"""A picture of a registered pair with its matches, in the run folder."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule

from pcnn.callbacks.evaluation_picture import EvaluationPicture
from pcnn.callbacks.pair import Pair
from pcnn.visualize.registration import overlay_picture


class PairPicture(EvaluationPicture[Pair]):
    """Draw the first pair of every validation into ``<folder>/predictions.png``.

    Both clouds as given and as registered, and the matches, right ones apart from wrong ones. A
    step returns what `pcnn.callbacks.pair.Pair` takes; None or anything else means that there is
    nothing to draw. The task's `judge.hit_distance` says what is right, the data module's
    `source_kind` whether the clouds are simulated. Arguments as in `EvaluationPicture`.
    """

    def taken(self, outputs: Any) -> Pair | None:
        """The pair in a step's outputs."""
        return Pair.of(outputs)

    def draw(self, first: Pair, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw the clouds and their matches."""
        task: Any = pl_module
        overlay_picture(
            first.source,
            first.target,
            first.estimate,
            self.path,
            f"{first.name}   ({when})",
            first.facts,
            getattr(data, "source_kind", None) == "simulated",
            matches=first.drawn(float(task.judge.hit_distance)),
        )
