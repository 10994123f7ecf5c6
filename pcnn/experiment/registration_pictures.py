"""Pictures of an evaluation of registration: curves of recall, best and worst pairs."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from pathlib import Path

import numpy as np

from pcnn.datasets.registration import PairDataset, RegistrationPair
from pcnn.metrics.registration import PairResult, Protocol, recall_curve
from pcnn.registration.estimate import Estimate
from pcnn.registration.evaluation import Evaluation
from pcnn.registration.transforms import transform_points
from pcnn.visualize.matches import DrawnMatches
from pcnn.visualize.registration import overlay_picture, recall_picture

AXES = {"rre": "RRE deg", "rte": "RTE m", "rmse": "RMSE m"}
MOST = {"rre": 15.0, "rte": 1.0, "rmse": 0.5}  # ends of the curves

#: By label of an axis: thresholds, and recall at each by name of the line.
Curves = dict[str, tuple[list[float], dict[str, list[float]]]]


def recall_curves(done: Evaluation, rules: Protocol) -> Curves:
    """Recall against the threshold of every error that the pairs have."""
    curves: Curves = {}
    first = next(iter(done.results.values()))
    for error, label in AXES.items():
        if all(isnan(getattr(pair, error)) for pair in first):
            continue
        limits = np.linspace(0, MOST[error], 61)
        lines = {
            "all" if number is None else str(number): recall_curve(
                pairs, rules, error, limits
            ).tolist()
            for number, pairs in done.results.items()
        }
        curves[label] = (limits.tolist(), lines)
    return curves


def draw_curves(path: Path, done: Evaluation, rules: Protocol, title: str) -> None:
    """Draw recall against every error that the pairs have."""
    curves = recall_curves(done, rules)
    own = {label: getattr(rules.success, error) for error, label in AXES.items()}
    if curves:
        recall_picture(curves, own, path, title)


def chosen_pairs(results: list[PairResult], number: int) -> dict[str, list[int]]:
    """Places of the pairs with the smallest and the largest errors."""
    order = sorted(range(len(results)), key=lambda place: badness(results[place]))
    return {"best": order[:number], "worst": order[::-1][:number]}


def draw_pairs(
    folder: Path,
    data: PairDataset,
    done: Evaluation,
    rules: Protocol,
    samples: int | None,
    number: int,
    matches: Callable[[RegistrationPair], Estimate],
) -> None:
    """Draw the pairs with the smallest and the largest errors: as given, as registered, matches.

    Args:
        folder: for best_1.png, worst_1.png, ...
        data: the pairs.
        done: their results.
        rules: a match is right within its distance.
        samples: number of samples whose results are drawn.
        number: of pairs of either kind.
        matches: a pair's matches once more; evaluations of many pairs do not keep them.
    """
    results, transforms = done.results[samples], done.transforms[samples]
    for kind, places in chosen_pairs(results, number).items():
        for rank, place in enumerate(places, 1):
            pair, result = data.pairs[place], results[place]
            transform = transforms[place]
            overlay_picture(
                data.cloud(pair.scene, pair.source).numpy(),
                data.cloud(pair.scene, pair.target).numpy(),
                None if bool(transform.isnan().any()) else transform.numpy(),
                folder / f"{kind}_{rank}.png",
                f"{pair.scene}, {pair.source} onto {pair.target}",
                facts_of(result),
                data.source_kind == "simulated",
                drawn_matches(matches(pair), pair, rules.inlier_distance),
            )


def drawn_matches(estimate: Estimate, pair: RegistrationPair, distance: float) -> DrawnMatches:
    """Matches with those within a distance [m] under the truth marked right."""
    moved = transform_points(pair.transform, estimate.source.double())
    right = (moved - estimate.target.double()).norm(dim=1) < distance
    return DrawnMatches(estimate.source.numpy(), estimate.target.numpy(), right.numpy())


def facts_of(result: PairResult) -> str:
    """Errors and matches of a pair in a line."""
    return (
        f"RRE {result.rre:.2f} deg   RTE {result.rte:.3f} m   "
        f"right matches {100 * result.inlier_ratio:.1f} %"
    )


def badness(result: PairResult) -> float:
    """Order of pairs: by RMSE, by RTE where there is none; without an estimate last."""
    error = result.rte if isnan(result.rmse) else result.rmse
    return float("inf") if isnan(error) else error
