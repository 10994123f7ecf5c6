"""The first output of every validation and test: a picture in the run folder, media at W&B."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pcnn.callbacks.lightning_internals import is_dry_run, logged_step
from pcnn.loggers import send_media

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest


class Pictures(Callback):
    """Draw the first scan or pair into ``<folder>/predictions.png`` and send it to W&B.

    It is the same each time, as evaluation has a fixed order, so that one sees how the network
    comes on. A step returns a dict with `points` [P, 3], `pred` [P], `target` [P] or None and
    `name`, or a `pcnn.visualize.registration.ShownPair` as ``pair``; else nothing is shown.
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        self.path = Path(folder) / "predictions.png"
        self._first: dict[str, Any] = {}

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if batch_idx == 0 and not dataloader_idx and trainer.is_global_zero:
            found = outputs if isinstance(outputs, Mapping) else {}
            self._first = {  # copied: a graph writes the next batch there
                name: one.detach().cpu().numpy() if isinstance(one, Tensor) else one
                for name, one in found.items()
            }

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self._show(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._show(trainer, pl_module, "test")

    def _show(self, trainer: Trainer, task: Any, stage: str) -> None:
        first, self._first = self._first, {}
        if is_dry_run(trainer) or not first:
            return
        # outside training the weights come from a checkpoint, whatever the trainer counted
        when = f"step {trainer.global_step}" if trainer.state.fn == "fit" else stage
        data = getattr(trainer, "datamodule", None)
        source, step = getattr(data, "source_kind", None), logged_step(trainer)
        if "pair" in first:
            from pcnn.visualize.registration import overlay_picture

            name = f"{first['pair'].name}   ({when})"
            pair = replace(first["pair"], name=name, simulated=source == "simulated")
            overlay_picture(pair, self.path)
            send_media(trainer.loggers, lambda: {f"{stage}/pair": self._image()}, step)
        elif {"points", "pred"} <= first.keys():
            from pcnn.visualize import distinct_colours
            from pcnn.visualize.segmentation import segmentation_picture

            given = getattr(data, "colors", None)
            parts = first["points"], first.get("target"), first["pred"], task.class_names, given
            name = first.get("name", "scan")
            segmentation_picture(*parts, self.path, f"{name}   ({when})", source=source)
            # W&B's own categories end at 14, so colours are given
            colours = distinct_colours(len(task.class_names)) if given is None else given
            note = f"{name} (SIMULATED)" if source == "simulated" else name
            send_media(trainer.loggers, lambda: clouds(first, colours, note, stage), step)

    def _image(self) -> Any:
        import wandb

        return wandb.Image(str(self.path))


def clouds(scan: Mapping[str, Any], colours: Any, name: str, stage: str) -> dict[str, Any]:
    """A scan by prediction and by truth as objects of W&B."""
    import wandb

    from pcnn.visualize import colourise

    step, media = -(-len(scan["points"]) // LIMIT) or 1, {}
    for kind, labels in (("prediction", scan["pred"]), ("truth", scan.get("target"))):
        if labels is not None:
            painted = colourise(labels[::step], np.asarray(colours, np.uint8))
            rows = np.concatenate((scan["points"][::step], painted), 1, dtype=np.float32)  # [P, 6]
            media[f"{stage}/scan/{kind}"] = wandb.Object3D(rows, caption=f"{name}, {kind}")
    return media
