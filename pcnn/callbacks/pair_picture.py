"""A picture of a registered pair with its matches, in the run folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lightning.pytorch import LightningModule

from pcnn.callbacks.evaluation_preview import EvaluationPicture
from pcnn.visualize.pair import ShownPair
from pcnn.visualize.registration import overlay_picture


class PairPicture(EvaluationPicture[ShownPair]):
    """Draw the first pair of every validation into ``<folder>/predictions.png``.

    Both clouds as given and as registered, and the matches, right ones apart from wrong ones. A
    step returns a `pcnn.visualize.pair.ShownPair` as ``pair``; without it there is nothing to draw.
    The data module's `source_kind` says whether the clouds are simulated. Arguments as in
    `EvaluationPicture`.
    """

    def taken(self, outputs: Any) -> ShownPair | None:
        """The pair that a step returned."""
        return outputs.get("pair") if isinstance(outputs, dict) else None

    def draw(self, first: ShownPair, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw the clouds and their matches."""
        simulated = getattr(data, "source_kind", None) == "simulated"
        name = f"{first.name}   ({when})"
        overlay_picture(replace(first, name=name, simulated=simulated), self.path)
