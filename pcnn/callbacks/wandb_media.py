"""Tables and clouds of an evaluation as objects of W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
import wandb
from numpy.typing import NDArray
from torch import Tensor

from pcnn.metrics import iou, present
from pcnn.metrics.registration import JudgedPairs, PairResult, Protocol
from pcnn.visualize import colourise, distinct_colours
from pcnn.visualize.registration import SOURCE, TARGET, ShownPair

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest

Media = dict[str, Any]


def of_scans(
    stage: str, counts: Tensor | None, names: Sequence[str], scans: Sequence[Any], data: Any
) -> Media:
    """IoU table of counts [C, C + 1], scans by prediction and by truth."""
    given = getattr(data, "colors", None)
    # W&B's own categories end at 14, so colours are given
    colours = distinct_colours(len(names)) if given is None else np.asarray(given, np.uint8)
    note = " (SIMULATED)" if getattr(data, "source_kind", None) == "simulated" else ""
    media: Media = {}
    if counts is not None:
        media["iou_table"] = iou_table(counts.cpu(), names)
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


def of_pairs(
    stage: str, results: Sequence[PairResult], rules: Protocol, pairs: Mapping[str, ShownPair]
) -> Media:
    """A table of results, and pairs before and after."""
    media: Media = {"pairs": pair_rows(JudgedPairs(results, rules))} if results else {}
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
