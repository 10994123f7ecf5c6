"""Tables, charts and clouds of an evaluation as objects of W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
import wandb
from numpy.typing import NDArray
from torch import Tensor

from pcnn.metrics import iou, present
from pcnn.metrics.registration import (
    JudgedPairs,
    PairResult,
    Protocol,
    recall_curves,
    summarize,
)
from pcnn.visualize import colourise, palette
from pcnn.visualize.pair import ShownPair
from pcnn.visualize.registration import SOURCE, TARGET

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest

Media = dict[str, Any]


def of_scans(
    stage: str, counts: Tensor | None, names: Sequence[str], scans: Sequence[Any], data: Any
) -> Media:
    """IoU table and confusion matrix of counts [C, C + 1], scans by prediction and by truth."""
    given = getattr(data, "colors", None)
    # W&B's own categories end at 14, so colours are given
    colours = palette(names) if given is None else np.asarray(given, np.uint8)
    note = " (SIMULATED)" if getattr(data, "source_kind", None) == "simulated" else ""
    media: Media = {}
    if counts is not None:
        media["iou_table"] = iou_table(counts.cpu(), names)
        media["confusion"] = confusion_chart(counts.cpu(), names, stage)
    for index, scan in enumerate(scans):
        step = -(-len(scan.points) // LIMIT) or 1
        for kind, labels in (("prediction", scan.pred), ("truth", scan.target)):
            if labels is not None:
                painted = colourise(labels[::step], colours)
                rows = np.concatenate((scan.points[::step], painted), 1, dtype=np.float32)  # [P, 6]
                caption = f"{scan.name}, {kind}{note}"
                media[f"scan_{index}/{kind}"] = wandb.Object3D(rows, caption=caption)
    return {f"{stage}/{key}": value for key, value in media.items()}


def iou_table(counts: Tensor, names: Sequence[str]) -> wandb.Table:
    """IoU, labelled points and predicted points of every class, by counts [C, C + 1]."""
    scores = [
        value if here else None
        for value, here in zip(iou(counts).tolist(), present(counts).tolist(), strict=True)
    ]
    points, predicted = counts.sum(1).tolist(), counts[:, : len(counts)].sum(0).tolist()
    rows = [list(row) for row in zip(names, scores, points, predicted, strict=True)]
    return wandb.Table(columns=["class", "iou", "points", "predicted points"], data=rows)


def confusion_chart(counts: Tensor, names: Sequence[str], stage: str) -> Any:
    """W&B's confusion matrix chart of counts [C, C + 1]."""
    rows = [
        [truth, predicted, int(counts[i, j])]
        for i, truth in enumerate(names)
        for j, predicted in enumerate(names)
    ]
    columns: list[str | int] = ["Actual", "Predicted", "nPredictions"]
    return wandb.plot_table(
        vega_spec_name="wandb/confusion_matrix/v1",
        data_table=wandb.Table(columns=columns, data=rows),
        fields={str(column): str(column) for column in columns},
        string_fields={"title": f"{stage}: points by true and predicted class"},
    )


def of_pairs(
    stage: str,
    results: Mapping[str, Sequence[PairResult]],
    rules: Protocol,
    pairs: Mapping[str, ShownPair],
) -> Media:
    """Tables of the first results, recall curves of all, and pairs before and after."""
    media: Media = {}
    if results:
        first = next(iter(results.values()))
        media["pairs"] = pair_rows(JudgedPairs(first, rules))
        scenes = [
            [scene, pairs, *map(_known, shares)]
            for scene, pairs, *shares in summarize(first, rules).per_scene
        ]
        media["scenes"] = wandb.Table(columns=["scene", "pairs", "rr", "fmr", "ir"], data=scenes)
        for label, (thresholds, lines) in recall_curves(results, rules).items():
            media[f"recall_by_{label.split()[0].lower()}"] = wandb.plot.line_series(
                xs=list(thresholds),
                ys=[[100 * value for value in line] for line in lines.values()],
                keys=list(lines),
                title="registration recall %",
                xname=label,
            )
    for key, pair in pairs.items():
        media[f"{key}/before"] = overlay(pair, pair.source, "as given")
        if pair.placed is not None:
            media[f"{key}/after"] = overlay(pair, pair.placed, "registered")
    return {f"{stage}/{key}": value for key, value in media.items()}


def pair_rows(judged: JudgedPairs) -> wandb.Table:
    """A line a pair."""
    rows = []
    for one, registered in zip(judged.results, judged.registered, strict=True):
        figures = map(_known, (one.rre, one.rte, one.inlier_ratio))
        name = f"{one.source} onto {one.target}"
        rows.append([one.scene, name, *figures, one.inliers, bool(registered)])
    columns: list[str | int] = [
        "scene",
        "pair",
        "rre_deg",
        "rte_m",
        "inlier_ratio",
        "inliers",
        "registered",
    ]
    return wandb.Table(columns=columns, data=rows)


def overlay(pair: ShownPair, source: NDArray[np.floating], state: str) -> wandb.Object3D:
    """The target, blue, and the source, orange, in a state: at most 50,000 points in proportion."""
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
