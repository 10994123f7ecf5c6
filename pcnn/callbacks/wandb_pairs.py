"""Tables, curves and overlays of a validation's pairs for Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from pcnn.callbacks.pair import Pair
from pcnn.callbacks.pair_media import PairFigures, overlays, pair_rows, recall_charts, scene_rows
from pcnn.loggers import find

MOST = {"RRE deg": 15.0, "RTE m": 2.0}  # ends of the curves


class WandbPairs(Callback):
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

    def __init__(self, pairs: int = 2, every_n_validations: int = 1) -> None:
        super().__init__()
        if pairs < 0 or every_n_validations < 1:
            raise ValueError(
                "pairs must be at least 0 and every_n_validations at least 1, got "
                f"{pairs} and {every_n_validations}"
            )
        self.pairs = pairs
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._kept: list[Pair] = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first pair of the first batches."""
        wanted = batch_idx < self.pairs and dataloader_idx == 0 and trainer.is_global_zero
        if not wanted or not self._due(trainer) or not find(trainer.loggers, WandbLogger):
            return
        pair = Pair.of(outputs)
        if pair is not None:
            self._kept.append(pair)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send everything."""
        if trainer.sanity_checking:
            return
        due = self._due(trainer)
        self._validations += 1
        pairs, self._kept = self._kept, []
        if not due or not trainer.is_global_zero:
            return
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        task: Any = pl_module
        figures = pair_figures(task.records.get("val", {}), task.judge)
        source = getattr(getattr(trainer, "datamodule", None), "source_kind", None)

        def send(logger: WandbLogger) -> None:
            media: dict[str, Any] = {}
            if figures:
                media = {"val/pairs": pair_rows(figures), "val/scenes": scene_rows(figures)}
                if task.judge.ransac is not None:
                    media |= recall_charts(curves_of(figures), "val")
            for index, pair in enumerate(pairs):
                media |= overlays(
                    f"val/pair_{index}", pair.source, pair.target, pair.estimate, pair.name, source
                )
            if media:
                logger.log_metrics(media, step)

        for guard, logger in find(trainer.loggers, WandbLogger):
            guard.guard("log media", partial(send, logger), None)

    def _due(self, trainer: Trainer) -> bool:
        return not trainer.sanity_checking and self._validations % self.every_n_validations == 0


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
