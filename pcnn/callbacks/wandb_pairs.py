"""Tables, curves and overlays of a validation's pairs for Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule

from pcnn.callbacks.evaluation_media import EvaluationMedia, Media
from pcnn.callbacks.pair import Pair
from pcnn.callbacks.pair_media import PairFigures, overlays, pair_rows, recall_charts, scene_rows
from pcnn.ranges import Count, Natural

MOST = {"RRE deg": 15.0, "RTE m": 2.0}  # ends of the curves


class WandbPairs(EvaluationMedia[Pair]):
    """Log tables per scene and per pair, recall curves and overlays of a few pairs to W&B.

    Does nothing without a `WandbLogger`. Pairs that are shown are the first of the first batches of
    a validation, always the same ones, at most 50,000 points an overlay, before and after. Captions
    say when the data is simulated. A failure of W&B costs the media, never the training.

    A task has `judge` and, after a validation, `records["val"]`: figures of every pair by its name
    ``SCENE/PAIR``; its steps return what `pcnn.callbacks.pair.Pair` takes.

    Args:
        pairs: how many pairs a validation shows.
        every_n_validations: send after every n-th validation.

    Raises:
        ValueError: a number out of range.
    """

    tests = False  # the report of a test sends its own

    def __init__(self, pairs: Natural = 2, every_n_validations: Count = 1) -> None:
        super().__init__(pairs, every_n_validations, "pairs")

    def taken(self, outputs: Any) -> Pair | None:
        """The pair in a step's outputs."""
        return Pair.of(outputs)

    def media(
        self, kept: Sequence[Pair], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """The tables, the curves, and every pair before and after."""
        task: Any = pl_module
        figures = pair_figures(task.records.get(stage, {}), task.judge)
        source = getattr(data, "source_kind", None)

        def made() -> Media:
            media: Media = {}
            if figures:
                media = {
                    f"{stage}/pairs": pair_rows(figures),
                    f"{stage}/scenes": scene_rows(figures),
                }
                if task.judge.ransac is not None:
                    media |= recall_charts(curves_of(figures), stage)
            for index, pair in enumerate(kept):
                media |= overlays(
                    f"{stage}/pair_{index}",
                    pair.source,
                    pair.target,
                    pair.estimate,
                    pair.name,
                    source,
                )
            return media

        return made


def pair_figures(records: Any, judge: Any) -> list[PairFigures]:
    """Lines of the table of pairs from a task's records by name."""
    lines = []
    for name, record in records.items():
        scene, _, pair = name.rpartition("/")
        lines.append(
            PairFigures(
                scene,
                pair,
                record.rre,
                record.rte,
                record.inlier_ratio,
                judge.matches_features(record),
                judge.registers(record),
            )
        )
    return lines


def curves_of(figures: Sequence[PairFigures]) -> dict[str, Any]:
    """Share of pairs below each threshold of RRE and RTE; a pair without an estimate is none."""
    curves = {}
    for label, values in (
        ("RRE deg", np.array([one.rre for one in figures])),
        ("RTE m", np.array([one.rte for one in figures])),
    ):
        limits = np.linspace(0, MOST[label], 61)
        recall = (values[None, :] < limits[:, None]).mean(1)  # NaN is below nothing
        curves[label] = (limits.tolist(), {"val": recall.tolist()})
    return curves
