"""Pictures of an evaluation of registration, in its folder and for Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isnan
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from pcnn.datasets.registration import PairDataset, RegistrationPair
from pcnn.loggers import send_media
from pcnn.metrics.registration import PairResult, Protocol, recall_curves
from pcnn.metrics.registration.pair_table import shown
from pcnn.metrics.registration.summary import ERRORS
from pcnn.registration.estimate import Estimate
from pcnn.registration.evaluation import Evaluation
from pcnn.visualize.pair import DrawnMatches, ShownPair
from pcnn.visualize.registration import overlay_picture, recall_picture
from pcnn.visualize.view.pair import shown_pair_view


def draw_curves(path: Path, done: Evaluation, rules: Protocol, title: str) -> None:
    """Draw recall against every error that the pairs have."""
    curves = recall_curves({shown(number): one for number, one in done.results.items()}, rules)
    limits = {ERRORS[error][0]: limit for error, limit in rules.success.thresholds.items()}
    if curves:
        recall_picture(curves, limits, path, title)


def chosen_pairs(results: Sequence[PairResult], number: int) -> dict[str, list[int]]:
    """Places of the pairs with the smallest and the largest errors."""
    order = sorted(range(len(results)), key=lambda place: badness(results[place]))
    return {"best": order[:number], "worst": order[::-1][:number]}


def badness(result: PairResult) -> float:
    """Order of pairs: by RMSE, by RTE where there is none; without an estimate last."""
    error = result.rte if isnan(result.rmse) else result.rmse
    return inf if isnan(error) else error


def shown_pair(data: PairDataset, done: Evaluation, samples: int | None, place: int) -> ShownPair:
    """A pair with its clouds, without matches."""
    pair = data.pairs[place]
    return ShownPair.of(
        f"{pair.scene}, {pair.source} onto {pair.target}",
        data.cloud(pair.scene, pair.source),
        data.cloud(pair.scene, pair.target),
        done.transforms[samples][place],
        facts=done.results[samples][place].facts,
        simulated=data.source_kind == "simulated",
    )


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

    A page for the browser lies beside each picture, best_1.html.
    """
    for kind, places in chosen_pairs(done.results[samples], number).items():
        for rank, place in enumerate(places, 1):
            truth, one = data.pairs[place].transform, matches(data.pairs[place])
            drawn = DrawnMatches.of(one.source, one.target, truth, rules.inlier_distance)
            pair = replace(shown_pair(data, done, samples, place), matches=drawn)
            overlay_picture(pair, folder / f"{kind}_{rank}.png")
            shown_pair_view(pair, VIEWED).write(folder / f"{kind}_{rank}.html")


VIEWED = 100_000  # points of a page
SHOWN = 2  # best and worst pairs, so many of each: an overlay is 10 MB and more


def send_evaluation(
    loggers: Sequence[Logger],
    data: PairDataset,
    done: Evaluation,
    rules: Protocol,
    samples: int | None,
    figures: dict[str, float],
) -> None:
    """Send figures, tables per pair and per scene, recall curves and overlays.

    Does nothing without W&B; a failure of it costs the media, never the evaluation.
    """

    def media() -> dict[str, Any]:
        from pcnn.callbacks.wandb_media import of_pairs

        pairs = {
            f"{kind}_{rank}": shown_pair(data, done, samples, place)
            for kind, places in chosen_pairs(
                done.results[samples], min(SHOWN, len(data.pairs))
            ).items()
            for rank, place in enumerate(places, 1)
        }
        lines = {shown(number): results for number, results in done.results.items()}
        ordered = {shown(samples): lines[shown(samples)], **lines}
        return {**figures, **of_pairs("test", ordered, rules, pairs)}

    send_media(loggers, media)
