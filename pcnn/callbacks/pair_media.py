"""Tables, curves and overlays of registered pairs as Weights & Biases shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcnn.callbacks.evaluation_media import LIMIT

SOURCE, TARGET = (232, 112, 16), (31, 88, 178)

#: By label of an axis: thresholds, and recall (0..1) at each by name of the line.
Curves = Mapping[str, tuple[Sequence[float], Mapping[str, Sequence[float]]]]


@dataclass(frozen=True)
class PairFigures:
    """A line of the table of pairs.

    Args:
        scene: scene or sequence.
        pair: what distinguishes the pair within it.
        rre: rotation error [deg]; NaN without an estimate.
        rte: translation error [m]; NaN likewise.
        inlier_ratio: share of right matches.
        matched: whether the pair counts for feature-match recall.
        registered: whether it counts for registration recall.
        inliers: matches that agree with the estimate; None where nobody counted them.
    """

    scene: str
    pair: str
    rre: float
    rte: float
    inlier_ratio: float
    matched: bool
    registered: bool
    inliers: int | None = None


def pair_rows(pairs: Sequence[PairFigures]) -> Any:
    """Return a `wandb.Table` with a line a pair."""
    import wandb

    rows = [
        [
            one.scene,
            one.pair,
            _known(one.rre),
            _known(one.rte),
            _known(one.inlier_ratio),
            one.inliers,
            one.registered,
        ]
        for one in pairs
    ]
    return wandb.Table(
        columns=["scene", "pair", "rre_deg", "rte_m", "inlier_ratio", "inliers", "registered"],
        data=rows,
    )


def scene_rows(pairs: Sequence[PairFigures]) -> Any:
    """Return a `wandb.Table` with a line a scene: pairs, RR, FMR and IR, means over its pairs."""
    import wandb

    rows = []
    for scene in dict.fromkeys(one.scene for one in pairs):
        here = [one for one in pairs if one.scene == scene]
        ratios = [one.inlier_ratio for one in here if not isnan(one.inlier_ratio)]
        rows.append(
            [
                scene,
                len(here),
                float(np.mean([one.registered for one in here])),
                float(np.mean([one.matched for one in here])),
                float(np.mean(ratios)) if ratios else None,
            ]
        )
    return wandb.Table(columns=["scene", "pairs", "rr", "fmr", "ir"], data=rows)


def recall_charts(curves: Curves, prefix: str) -> dict[str, Any]:
    """Return W&B charts of recall against every error's threshold, by key."""
    import wandb

    return {
        f"{prefix}/recall_by_{label.split()[0].lower()}": wandb.plot.line_series(
            xs=list(thresholds),
            ys=[[100 * value for value in line] for line in lines.values()],
            keys=list(lines),
            title="registration recall %",
            xname=label,
        )
        for label, (thresholds, lines) in curves.items()
    }


def overlay(
    source: NDArray[np.floating],
    target: NDArray[np.floating],
    transform: NDArray[np.floating] | None,
    caption: str,
    source_kind: str | None = None,
) -> Any:
    """Return a `wandb.Object3D` of two clouds, the target blue, the source orange.

    At most 50,000 points, an even choice of each cloud in proportion; the caption says when the
    data is simulated.

    Args:
        source: [N, 3] [m].
        target: [M, 3] [m].
        transform: [4, 4] that moves the source first; None leaves it where it is.
        caption: what is shown.
        source_kind: ``real`` or ``simulated``.
    """
    import wandb

    if transform is not None:
        source = source @ transform[:3, :3].T + transform[:3, 3]
    step = max(1, -(-(len(source) + len(target)) // (LIMIT - 2)))
    parts = []
    for points, colour in ((target[::step], TARGET), (source[::step], SOURCE)):
        parts.append(np.concatenate([points, np.tile(colour, (len(points), 1))], 1))
    note = " (SIMULATED)" if source_kind == "simulated" else ""
    rows = np.concatenate(parts).astype(np.float32)  # [P, 6]
    return wandb.Object3D(rows, caption=caption + note)


def overlays(
    key: str,
    source: NDArray[np.floating],
    target: NDArray[np.floating],
    transform: NDArray[np.floating] | None,
    caption: str,
    source_kind: str | None = None,
) -> dict[str, Any]:
    """Return overlays before and, where there is a transform, after it, by key."""
    media = {f"{key}/before": overlay(source, target, None, f"{caption}, as given", source_kind)}
    if transform is not None:
        media[f"{key}/after"] = overlay(
            source, target, transform, f"{caption}, registered", source_kind
        )
    return media


def _known(value: float) -> float | None:
    """A figure, None where it does not exist."""
    return None if isnan(value) else float(value)
