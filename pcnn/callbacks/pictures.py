"""The first outputs of every validation and test: a picture in the run folder, media at W&B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from numpy.typing import NDArray

from pcnn.lightning_internals import is_dry_run, logged_step
from pcnn.loggers import send_media
from pcnn.ranges import Count, Natural

if TYPE_CHECKING:
    from pcnn.visualize.registration import ShownPair

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest


@dataclass(frozen=True)
class Scan:
    """A predicted scan on the host."""

    points: NDArray[np.float32]  # [P, 3] [m]
    pred: NDArray[np.int64]  # [P] class ids
    target: NDArray[np.int64] | None  # [P] class ids or the ignored id
    name: str

    @classmethod
    def of(cls, outputs: dict[str, Any]) -> Scan | None:
        """The scan in a step's outputs; None when there is none."""
        if not {"points", "pred"} <= set(outputs):
            return None
        target = outputs.get("target")
        return cls(
            points=outputs["points"].detach().float().cpu().numpy(),
            pred=outputs["pred"].detach().long().cpu().numpy(),
            target=None if target is None else target.detach().long().cpu().numpy(),
            name=str(outputs.get("name", "scan")),
        )


class Pictures(Callback):
    """Draw the first scan or pair into ``<folder>/predictions.png``, send the first ones to W&B.

    They are the same each time, as evaluation has a fixed order, so that one sees how the network
    comes on. A step returns a dict with `points` [P, 3], `pred` [P], `target` [P] or None and
    `name`, or a `pcnn.visualize.registration.ShownPair` as ``pair``; else nothing is shown.
    """

    def __init__(
        self, folder: str | Path, every_n_validations: Count = 1, clouds: Natural = 2
    ) -> None:
        super().__init__()
        self.path = Path(folder) / "predictions.png"
        self.every_n_validations = every_n_validations
        self.clouds = clouds
        self._validations = 0
        self._kept: list[Scan | ShownPair] = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if trainer.sanity_checking or not trainer.is_global_zero or dataloader_idx:
            return
        if batch_idx == 0:
            self._kept = []  # an evaluation that was broken off left its own
        sends = any(isinstance(logger, WandbLogger) for logger in trainer.loggers)
        due = trainer.testing or self._validations % self.every_n_validations == 0
        if due and batch_idx < (max(1, self.clouds) if sends else 1) and isinstance(outputs, dict):
            thing = outputs.get("pair") or Scan.of(outputs)
            if thing is not None:
                self._kept.append(thing)

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            if self._validations % self.every_n_validations == 0:
                self._show(trainer, pl_module, "val")
            self._validations += 1

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._show(trainer, pl_module, "test")

    def _show(self, trainer: Trainer, task: Any, stage: str) -> None:
        kept, self._kept = self._kept, []
        if not trainer.is_global_zero or is_dry_run(trainer):
            return
        # outside training the weights come from a checkpoint, whatever the trainer counted
        when = f"step {trainer.global_step}" if trainer.state.fn == "fit" else stage
        data = getattr(trainer, "datamodule", None)
        simulated = getattr(data, "source_kind", None) == "simulated"
        kept = [one if isinstance(one, Scan) else replace(one, simulated=simulated) for one in kept]
        for first in kept[:1]:
            self.draw(first, f"{first.name}   ({when})", task, data)
        shown = partial(_media, task, kept[: self.clouds], data, stage, self.path)
        send_media(trainer.loggers, shown, logged_step(trainer))

    def draw(self, thing: Scan | ShownPair, title: str, task: Any, data: Any) -> None:
        """Draw a scan with its mistakes, or a pair."""
        if not isinstance(thing, Scan):
            from pcnn.visualize.registration import overlay_picture

            overlay_picture(replace(thing, name=title), self.path)
            return
        from pcnn.visualize.segmentation import segmentation_picture

        segmentation_picture(
            thing.points,
            thing.target,
            thing.pred,
            task.class_names,
            getattr(data, "colors", None),
            self.path,
            title,
            source=getattr(data, "source_kind", None),
        )


def _media(task: Any, kept: Sequence[Any], data: Any, stage: str, path: Path) -> dict[str, Any]:
    """What W&B gets: IoU of every class and the scans by prediction and by truth, or a picture."""
    import wandb

    from pcnn.metrics import iou, present
    from pcnn.visualize import colourise, distinct_colours

    if not hasattr(task, "class_names"):
        return {f"{stage}/pair": wandb.Image(str(path))} if kept else {}
    names = list(task.class_names)
    media: dict[str, Any] = {}
    counts = getattr(task, "confusion", {}).get(stage)
    if counts is not None:
        points, predicted = counts.sum(1).tolist(), counts[:, : len(counts)].sum(0).tolist()
        there = zip(iou(counts).tolist(), present(counts).tolist(), strict=True)
        scores = [value if here else None for value, here in there]
        rows = [list(row) for row in zip(names, scores, points, predicted, strict=True)]
        columns: list[str | int] = ["class", "iou", "points", "predicted points"]
        media[f"{stage}/iou_table"] = wandb.Table(columns=columns, data=rows)
    given = getattr(data, "colors", None)
    # W&B's own categories end at 14, so colours are given
    colours = distinct_colours(len(names)) if given is None else np.asarray(given, np.uint8)
    note = " (SIMULATED)" if getattr(data, "source_kind", None) == "simulated" else ""
    for index, scan in enumerate(kept):
        step = -(-len(scan.points) // LIMIT) or 1
        for kind, labels in (("prediction", scan.pred), ("truth", scan.target)):
            if labels is not None:
                painted = colourise(labels[::step], colours)
                cloud = np.concatenate((scan.points[::step], painted), 1, dtype=np.float32)
                shown = wandb.Object3D(cloud, caption=f"{scan.name}, {kind}{note}")  # [P, 6]
                media[f"{stage}/scan_{index}/{kind}"] = shown
    return media
