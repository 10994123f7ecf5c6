"""What an evaluation of registration sends to Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from lightning.pytorch.loggers import Logger, WandbLogger

from pcnn.callbacks.pair_media import (
    PairFigures,
    overlays,
    pair_rows,
    recall_charts,
    scene_rows,
)
from pcnn.datasets.registration import PairDataset
from pcnn.experiment.registration_pictures import chosen_pairs, recall_curves
from pcnn.loggers import find
from pcnn.metrics.registration import PairResult, Protocol, succeeded
from pcnn.metrics.registration.summary import below, column
from pcnn.registration.evaluation import Evaluation

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

    Args:
        loggers: guarded or not.
        data: the pairs.
        done: their results.
        rules: what counts.
        samples: number of samples whose pairs are listed and shown.
        figures: as metrics.json holds them.
    """

    def send(logger: WandbLogger) -> None:
        lines = pair_lines(done.results[samples], rules)
        media: dict[str, Any] = {"test/pairs": pair_rows(lines), "test/scenes": scene_rows(lines)}
        media |= recall_charts(recall_curves(done, rules), "test")
        number = min(SHOWN, len(lines))
        for kind, places in chosen_pairs(done.results[samples], number).items():
            for rank, place in enumerate(places, 1):
                pair, transform = data.pairs[place], done.transforms[samples][place]
                media |= overlays(
                    f"test/{kind}_{rank}",
                    data.cloud(pair.scene, pair.source).numpy(),
                    data.cloud(pair.scene, pair.target).numpy(),
                    None if bool(transform.isnan().any()) else transform.numpy(),
                    f"{pair.scene}, {pair.source} onto {pair.target}",
                    data.source_kind,
                )
        logger.log_metrics({**figures, **media})

    for guard, logger in find(loggers, WandbLogger):
        guard.guard("log media", partial(send, logger), None)


def pair_lines(results: Sequence[PairResult], rules: Protocol) -> list[PairFigures]:
    """Lines of the table of pairs."""
    ratios = column(results, "inlier_ratio")
    enough = ~below(ratios, rules.inlier_share, not rules.share_inclusive) & (ratios == ratios)
    return [
        PairFigures(
            one.scene,
            f"{one.source} onto {one.target}",
            one.rre,
            one.rte,
            one.inlier_ratio,
            bool(matched),
            bool(good),
            one.inliers,
        )
        for one, good, matched in zip(
            results, succeeded(results, rules.success), enough, strict=True
        )
    ]
