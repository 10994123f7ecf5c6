"""Registered pairs: a picture in the run folder, and what Weights & Biases shows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from typing import Any

import numpy as np
from lightning.pytorch import LightningModule
from numpy.typing import NDArray

from pcnn.callbacks.evaluation_preview import LIMIT, EvaluationMedia, EvaluationPicture, Media
from pcnn.metrics.registration import (
    Curves,
    JudgedPairs,
    PairResult,
    Protocol,
    Summary,
    recall_curves,
    summarize,
)
from pcnn.ranges import Count, Natural
from pcnn.visualize.pair import ShownPair
from pcnn.visualize.registration import SOURCE, TARGET, overlay_picture
from pcnn.visualize.view import View
from pcnn.visualize.view.pair import shown_pair_view


def pair_media(
    prefix: str,
    results: Mapping[str, Sequence[PairResult]],
    rules: Protocol,
    pairs: Mapping[str, ShownPair],
) -> Media:
    """Everything that is shown of an evaluation, by key."""
    media: Media = {}
    if results:
        first = next(iter(results.values()))
        media["pairs"] = pair_rows(JudgedPairs(first, rules))
        media["scenes"] = scene_rows(summarize(first, rules, draws=0))
        media |= recall_charts(recall_curves(results, rules))
    for key, pair in pairs.items():
        media |= overlays(key, pair)
    return {f"{prefix}/{key}": value for key, value in media.items()}


def pair_rows(judged: JudgedPairs) -> Any:
    """Return a `wandb.Table` with a line a pair."""
    import wandb

    rows = [
        [
            one.scene,
            f"{one.source} onto {one.target}",
            *map(_known, (one.rre, one.rte, one.inlier_ratio)),
            one.inliers,
            bool(registered),
        ]
        for one, registered in zip(judged.results, judged.registered, strict=True)
    ]
    return wandb.Table(
        columns=["scene", "pair", "rre_deg", "rte_m", "inlier_ratio", "inliers", "registered"],
        data=rows,
    )


def scene_rows(summary: Summary) -> Any:
    """Return a `wandb.Table` with a line a scene: pairs that count, RR, FMR and IR."""
    import wandb

    rows = [[scene, pairs, *map(_known, shares)] for scene, pairs, *shares in summary.per_scene]
    return wandb.Table(columns=["scene", "pairs", "rr", "fmr", "ir"], data=rows)


def recall_charts(curves: Curves) -> Media:
    """Return W&B charts of recall against every error's threshold, by key."""
    import wandb

    return {
        f"recall_by_{label.split()[0].lower()}": wandb.plot.line_series(
            xs=list(thresholds),
            ys=[[100 * value for value in line] for line in lines.values()],
            keys=list(lines),
            title="registration recall %",
            xname=label,
        )
        for label, (thresholds, lines) in curves.items()
    }


def overlays(key: str, pair: ShownPair) -> Media:
    """Return overlays before and, where there is a transform, after it, by key."""
    media = {f"{key}/before": _overlay(pair, pair.source, "as given")}
    if pair.placed is not None:
        media[f"{key}/after"] = _overlay(pair, pair.placed, "registered")
    return media


def _overlay(pair: ShownPair, source: NDArray[np.floating], state: str) -> Any:
    """A `wandb.Object3D` of the target, blue, and the source, orange, in a state."""
    # at most 50,000 points, an even choice of each cloud in proportion
    import wandb

    step = max(1, -(-(len(source) + len(pair.target)) // (LIMIT - 2)))
    parts = [
        np.concatenate([points, np.tile(colour, (len(points), 1))], 1)
        for points, colour in ((pair.target[::step], TARGET), (source[::step], SOURCE))
    ]
    caption = f"{pair.name}, {state}" + " (SIMULATED)" * pair.simulated
    return wandb.Object3D(np.concatenate(parts).astype(np.float32), caption=caption)


def _known(value: float) -> float | None:
    """A figure, None where it does not exist."""
    return None if isnan(value) else float(value)


def _pair_of(outputs: Any) -> ShownPair | None:
    return outputs.get("pair") if isinstance(outputs, dict) else None


def _labelled(pair: ShownPair, data: Any) -> ShownPair:
    """A pair that says whether its clouds are simulated."""
    return replace(pair, simulated=getattr(data, "source_kind", None) == "simulated")


class PairPicture(EvaluationPicture[ShownPair]):
    """Draw the first pair of every validation into ``<folder>/predictions.png``.

    Both clouds as given and as registered, and the matches, right ones apart from wrong ones. A
    step returns a `pcnn.visualize.pair.ShownPair` as ``pair``; without it there is nothing to draw.
    The data module's `source_kind` says whether the clouds are simulated. Arguments as in
    `EvaluationPicture`.
    """

    def taken(self, outputs: Any) -> ShownPair | None:
        """The pair that a step returned."""
        return _pair_of(outputs)

    def draw(self, first: ShownPair, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw the clouds and their matches."""
        name = f"{first.name}   ({when})"
        overlay_picture(replace(_labelled(first, data), name=name), self.path)

    def view(
        self, first: ShownPair, pl_module: LightningModule, data: Any, when: str
    ) -> View | None:
        """The clouds as given and as registered."""
        if not len(first.source) + len(first.target):
            return None
        name = f"{first.name} ({when})"
        return shown_pair_view(replace(_labelled(first, data), name=name), self.view_points)


class WandbPairs(EvaluationMedia[ShownPair]):
    """Log tables per scene and per pair, recall curves and overlays of a few pairs to W&B.

    Does nothing without a `WandbLogger`. Pairs that are shown are the first of the first batches of
    a validation, always the same ones, at most 50,000 points an overlay, before and after. Captions
    say when the data is simulated. A failure of W&B costs the media, never the training.

    A task has `rules`, a protocol, and after a validation `results["val"]`, one a pair; its steps
    return a `pcnn.visualize.pair.ShownPair` as ``pair``.
    """

    tests = False  # the report of a test sends its own

    def __init__(self, pairs: Natural = 2, every_n_validations: Count = 1) -> None:
        super().__init__(pairs, every_n_validations, "pairs")

    def taken(self, outputs: Any) -> ShownPair | None:
        """The pair that a step returned."""
        return _pair_of(outputs)

    def media(
        self, kept: Sequence[ShownPair], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """The tables, the curves, and every pair before and after."""
        task: Any = pl_module
        results = task.results.get(stage)
        pairs = {f"pair_{index}": _labelled(pair, data) for index, pair in enumerate(kept)}
        lines = {stage: results} if results else {}
        return partial(pair_media, stage, lines, task.rules, pairs)
