"""What an evaluation sends to Weights & Biases, and when."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from pcnn.loggers import find

LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest

T = TypeVar("T")
Media = dict[str, Any]


class EvaluationMedia(Callback, Generic[T]):
    """Send media of an evaluation, and the first things of its first batches, to W&B.

    Does nothing without a `WandbLogger`. What is shown is the same each time, as evaluation has a
    fixed order. A failure of W&B costs the media, never the training. Subclasses say what they take
    out of a step's outputs, and what is sent.

    Args:
        shown: how many things an evaluation shows.
        every_n_validations: send after every n-th validation; a test always sends.
        things: what they are called in messages.

    Raises:
        ValueError: a number out of range.
    """

    #: whether tests send too
    tests = True

    def __init__(self, shown: int, every_n_validations: int, things: str) -> None:
        super().__init__()
        if shown < 0 or every_n_validations < 1:
            raise ValueError(
                f"{things} must be at least 0 and every_n_validations at least 1, got "
                f"{shown} and {every_n_validations}"
            )
        self.shown = shown
        self.every_n_validations = every_n_validations
        self._validations = 0
        self._kept: list[T] = []

    @abstractmethod
    def taken(self, outputs: Any) -> T | None:
        """What is shown, on the host; None when a step's outputs hold nothing to show."""

    @abstractmethod
    def media(
        self, kept: Sequence[T], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """Make what is sent, by name; nothing sends nothing.

        What the task and the data module tell is read in this call, W&B's objects are made in the
        returned one, once a logger.
        """

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first thing of the first batches."""
        if self._due() and not trainer.sanity_checking:
            self._keep(trainer, outputs, batch_idx, dataloader_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first thing of the first batches."""
        if self.tests:
            self._keep(trainer, outputs, batch_idx, dataloader_idx)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send everything."""
        if not trainer.sanity_checking:
            if self._due():
                self._send(trainer, pl_module, "val")
            self._validations += 1

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send everything."""
        if self.tests:
            self._send(trainer, pl_module, "test")

    def _due(self) -> bool:
        return self._validations % self.every_n_validations == 0

    def _keep(self, trainer: Trainer, outputs: Any, batch_idx: int, dataloader_idx: int) -> None:
        wanted = batch_idx < self.shown and dataloader_idx == 0 and trainer.is_global_zero
        if not wanted or not find(trainer.loggers, WandbLogger):
            return
        thing = self.taken(outputs)
        if thing is not None:
            self._kept.append(thing)

    def _send(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        kept, self._kept = self._kept, []
        if not trainer.is_global_zero:
            return
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        made = self.media(kept, pl_module, getattr(trainer, "datamodule", None), stage)

        def send(logger: WandbLogger) -> None:
            media = made()
            if media:
                logger.log_metrics(media, step)

        for guard, logger in find(trainer.loggers, WandbLogger):
            guard.guard("log media", partial(send, logger), None)
