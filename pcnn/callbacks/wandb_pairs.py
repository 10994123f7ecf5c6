"""Tables, curves and overlays of a validation's pairs for Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lightning.pytorch import LightningModule

from pcnn.callbacks.evaluation_preview import EvaluationMedia, Media
from pcnn.callbacks.pair_media import pair_media
from pcnn.ranges import Count, Natural
from pcnn.visualize.pair import ShownPair


class WandbPairs(EvaluationMedia[ShownPair]):
    """Log tables per scene and per pair, recall curves and overlays of a few pairs to W&B.

    Does nothing without a `WandbLogger`. Pairs that are shown are the first of the first batches of
    a validation, always the same ones, at most 50,000 points an overlay, before and after. Captions
    say when the data is simulated. A failure of W&B costs the media, never the training.

    A task has `rules`, a protocol, and after a validation `results["val"]`, one a pair; its steps
    return a `pcnn.visualize.pair.ShownPair` as ``pair``.

    Args:
        pairs: how many pairs a validation shows.
        every_n_validations: send after every n-th validation.

    Raises:
        ValueError: a number out of range.
    """

    tests = False  # the report of a test sends its own

    def __init__(self, pairs: Natural = 2, every_n_validations: Count = 1) -> None:
        super().__init__(pairs, every_n_validations, "pairs")

    def taken(self, outputs: Any) -> ShownPair | None:
        """The pair that a step returned."""
        return outputs.get("pair") if isinstance(outputs, dict) else None

    def media(
        self, kept: Sequence[ShownPair], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """The tables, the curves, and every pair before and after."""
        task: Any = pl_module
        results = task.results.get(stage)
        simulated = getattr(data, "source_kind", None) == "simulated"
        pairs = {
            f"pair_{index}": replace(pair, simulated=simulated) for index, pair in enumerate(kept)
        }
        lines = {stage: results} if results else {}
        return partial(pair_media, stage, lines, task.rules, pairs)
