"""Something shown at the end of every evaluation, of the first things in it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer

T = TypeVar("T")


class EvaluationPreview(Callback, Generic[T]):
    """Keep what the first steps of a validation or test return, and show it when it ends.

    It is the same each time, as evaluation has a fixed order, so that one sees how the network
    comes on. Rank 0 alone keeps and shows. Subclasses say what they take out of a step's outputs,
    and show it.

    Args:
        shown: of how many batches, each its first thing.
        every_n_validations: show after every n-th validation, the first among them; a test always.
        things: what they are called in messages.

    Raises:
        ValueError: a number out of range.
    """

    #: whether tests show too
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
    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Show what was kept, which may be nothing, of the stage ``val`` or ``test``."""

    def wanted(self, trainer: Trainer) -> bool:
        """Whether there is anybody to show things to."""
        return True

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
        """Show everything."""
        if not trainer.sanity_checking:
            if self._due():
                self._show(trainer, pl_module, "val")
            self._validations += 1

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show everything."""
        if self.tests:
            self._show(trainer, pl_module, "test")

    def _due(self) -> bool:
        return self._validations % self.every_n_validations == 0

    def _keep(self, trainer: Trainer, outputs: Any, batch_idx: int, dataloader_idx: int) -> None:
        if batch_idx >= self.shown or dataloader_idx != 0 or not trainer.is_global_zero:
            return
        if batch_idx == 0:
            self._kept = []  # an evaluation that was broken off left its own
        thing = self.taken(outputs) if self.wanted(trainer) else None
        if thing is not None:
            self._kept.append(thing)

    def _show(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        kept, self._kept = self._kept, []
        if trainer.is_global_zero:
            self.show(kept, trainer, pl_module, stage)
