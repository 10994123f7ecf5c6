"""What an evaluation sends to Weights & Biases."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from pcnn.callbacks.evaluation_preview import EvaluationPreview, T
from pcnn.loggers import find

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest

Media = dict[str, Any]


class EvaluationMedia(EvaluationPreview[T]):
    """Send media of an evaluation, and the first things of its first batches, to W&B.

    Does nothing without a `WandbLogger`. What is shown is the same each time, as evaluation has a
    fixed order. A failure of W&B costs the media, never the training. Subclasses say what they take
    out of a step's outputs, and what is sent. Arguments as in `EvaluationPreview`.
    """

    @abstractmethod
    def media(
        self, kept: Sequence[T], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """Make what is sent, by name; nothing sends nothing.

        What the task and the data module tell is read in this call, W&B's objects are made in the
        returned one, once a logger.
        """

    def wanted(self, trainer: Trainer) -> bool:
        """Whether W&B is among the loggers."""
        return bool(find(trainer.loggers, WandbLogger))

    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Send everything."""
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        made = self.media(kept, pl_module, getattr(trainer, "datamodule", None), stage)

        def send(logger: WandbLogger) -> None:
            media = made()
            if media:
                logger.log_metrics(media, step)

        for guard, logger in find(trainer.loggers, WandbLogger):
            guard.guard("log media", partial(send, logger), None)
