"""Sends an evaluation of registration to Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lightning.pytorch.loggers import Logger, WandbLogger

from pcnn.callbacks.pair_media import pair_media
from pcnn.datasets.registration import PairDataset
from pcnn.experiment.registration_pictures import chosen_pairs, shown_pair
from pcnn.loggers import find
from pcnn.metrics.registration import Protocol
from pcnn.metrics.registration.comparison_report import shown
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
        pairs = {
            f"{kind}_{rank}": shown_pair(data, done, samples, place)
            for kind, places in chosen_pairs(
                done.results[samples], min(SHOWN, len(data.pairs))
            ).items()
            for rank, place in enumerate(places, 1)
        }
        lines = {shown(number): results for number, results in done.results.items()}
        ordered = {shown(samples): lines[shown(samples)], **lines}
        logger.log_metrics({**figures, **pair_media("test", ordered, rules, pairs)})

    for guard, logger in find(loggers, WandbLogger):
        guard.guard("log media", partial(send, logger), None)
