"""The first outputs of an evaluation: a picture in the run folder, media at W&B."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from pcnn.lightning_internals import is_dry_run, logged_step
from pcnn.loggers import find
from pcnn.ranges import Count, Natural
from pcnn.visualize.view import View

T = TypeVar("T")


class EvaluationPreview(Callback, Generic[T]):
    """Keep what the first steps of a validation or test return, and show it when it ends.

    It is the same each time, as evaluation has a fixed order, so that one sees how the network
    comes on. Rank 0 alone keeps and shows. Subclasses say what they take out of a step's outputs,
    and show it.
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
        """The thing to show, on the host; None when a step's outputs hold none."""

    @abstractmethod
    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Show what was kept, which may be nothing, of the stage ``val`` or ``test``."""

    def wanted(self, trainer: Trainer) -> bool:
        """True where something receives what is shown."""
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
        shows = self.tests if trainer.testing else self._due() and not trainer.sanity_checking
        first = batch_idx < self.shown and dataloader_idx == 0
        if not (shows and first and trainer.is_global_zero):
            return
        if batch_idx == 0:
            self._kept = []  # an evaluation that was broken off left its own
        thing = self.taken(outputs) if self.wanted(trainer) else None
        if thing is not None:
            self._kept.append(thing)

    on_test_batch_end = on_validation_batch_end

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

    def _show(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        kept, self._kept = self._kept, []
        if trainer.is_global_zero:
            self.show(kept, trainer, pl_module, stage)


class EvaluationPicture(EvaluationPreview[T]):
    """Draw what the first step of a validation or test returns into ``<folder>/predictions.png``.

    It is the same scan or pair each time (evaluation has a fixed order), so that the file shows how
    the network comes on. ``<folder>/predictions.html`` shows the same in a browser. Subclasses say
    what they take out of a step's outputs, and draw it.
    """

    def __init__(
        self, folder: str | Path, every_n_validations: Count = 1, view_points: Natural = 100_000
    ) -> None:
        super().__init__(1, every_n_validations, "pictures")
        self.path = Path(folder) / "predictions.png"
        self.page = Path(folder) / "predictions.html"
        self.view_points = view_points

    @abstractmethod
    def draw(self, first: T, pl_module: LightningModule, data: Any, when: str) -> None:
        """Draw it into `path`; `data` is the data module, `when` a note for the title."""

    @abstractmethod
    def view(self, first: T, pl_module: LightningModule, data: Any, when: str) -> View | None:
        """The page of it, None where there is no point to show; arguments as of `draw`."""

    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Draw the first one, if there is any."""
        if kept and not is_dry_run(trainer):
            # outside training the weights come from a checkpoint, whatever the trainer counted
            fitting = trainer.state.fn == "fit"
            when = f"step {trainer.global_step}" if fitting else stage
            data = getattr(trainer, "datamodule", None)
            self.draw(kept[0], pl_module, data, when)
            page = self.view(kept[0], pl_module, data, when) if self.view_points else None
            if page is not None:
                page.write(self.page)


LIMIT = 50_000  # points of an Object3D: 4 MB of JSON for every 10,000, and viewers drop the rest

Media = dict[str, Any]


class EvaluationMedia(EvaluationPreview[T]):
    """Send media of an evaluation, and the first things of its first batches, to W&B.

    Does nothing without a `WandbLogger`. The same outputs are shown each time, as evaluation has a
    fixed order. A failure of W&B costs the media, never the training. Subclasses say what they take
    out of a step's outputs, and what is sent. Arguments as in `EvaluationPreview`.
    """

    @abstractmethod
    def media(
        self, kept: Sequence[T], pl_module: LightningModule, data: Any, stage: str
    ) -> Callable[[], Media]:
        """Make what is sent, by name; nothing sends nothing.

        Task and data module are read in this call; the objects of W&B are made in
        the returned one, once a logger.
        """

    def wanted(self, trainer: Trainer) -> bool:
        """True where W&B is among the loggers."""
        return bool(find(trainer.loggers, WandbLogger))

    def show(
        self, kept: Sequence[T], trainer: Trainer, pl_module: LightningModule, stage: str
    ) -> None:
        """Send everything."""
        step = logged_step(trainer)
        made = self.media(kept, pl_module, getattr(trainer, "datamodule", None), stage)

        def send(logger: WandbLogger) -> None:
            media = made()
            if media:
                logger.log_metrics(media, step)

        for guard, logger in find(trainer.loggers, WandbLogger):
            guard.guard("log media", partial(send, logger), None)
