"""The two checkpoints of a run, last.ckpt and best.ckpt, written whole or not at all.

`last.ckpt` is written at a step boundary: after the optimiser and the schedule have stepped, before
the next batch is fetched, and behind a validation that is due there: Lightning's `ModelCheckpoint`
would resume behind a validation that was killed, the best state missed. Files hold tensors and
plain values only, with the resolved configuration under ``pcnn_config``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint

from pcnn.callbacks.lightning_internals import (
    is_dry_run,
    is_end_of_epoch,
    is_last_batch,
    is_validation_due,
    log_step,
)
from pcnn.checkpoints.checkpoint_file import read_checkpoint, write_whole
from pcnn.config.values import values_in
from pcnn.errors import ConfigError
from pcnn.files.whole_file import drop_parts
from pcnn.ranges import Count, Share

#: What a checkpoint keeps of the callback.
STATE = ("best_score", "best_step")
#: Of a sampler, what fixes the number of batches in an epoch.
BATCHES = ("batch_size", "world")


class Stopped(SystemExit):
    """The run ends because a signal asked it to; the exit code is 128 + `signum`."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signum


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's way to the disk: local files, forced there and renamed; nothing unpickled."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Write `checkpoint` to `path`."""
        if storage_options is not None:
            raise TypeError(f"storage_options mean nothing for a local file, got {storage_options}")
        write_whole(checkpoint, Path(path))

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Tensors and plain values alone, whatever `weights_only` says."""
        return read_checkpoint(Path(path), map_location=map_location, mmap=False)


class Checkpoint(LightningCheckpoint):
    """Keep ``<folder>/last.ckpt`` every some steps, ``best.ckpt`` by a figure of validations.

    Where writing the former would take more than `share` of the time, it is left out until it does
    not: a hundred steps of a GPU take no longer than three such files.
    A run continued from there does not differ from one that was never ended.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint_every: Count = 100,
        monitor: str = "val/miou_present",
        mode: Literal["max", "min"] = "max",
        config: Mapping[str, Any] | None = None,
        share: Share = 0.05,
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.checkpoint_every = checkpoint_every
        self.monitor = monitor
        self.mode = mode
        self.config = config
        self.share = share
        #: figure of best.ckpt and the optimiser steps behind it
        self.best_score: float | None = None
        self.best_step: int | None = None
        self._seen_step = 0  # optimiser steps at the end of the batch before
        self._saved_step = 0  # optimiser steps in the last.ckpt written or resumed from
        self._behind_validation = False  # last.ckpt is due and waits for the validation
        self._written, self._took = 0.0, 0.0  # when the last.ckpt before was, in how many seconds

    @property
    def best_model_path(self) -> str:
        """Path of the best checkpoint, empty when there is none."""
        return self._path_of("best.ckpt")

    @property
    def last_model_path(self) -> str:
        """Path of the last checkpoint, empty when there is none."""
        return self._path_of("last.ckpt")

    def _path_of(self, name: str) -> str:
        return str(self.folder / name) if (self.folder / name).exists() else ""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.config is not None:
            list(values_in(dict(self.config), "config"))  # plain values alone
        if stage != "fit":
            return
        # a writer that was chosen on purpose stays
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()
        if trainer.is_global_zero:
            drop_parts(self.folder, "*.ckpt")  # left by a killed process

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        """Write `last.ckpt` when it is due, or leave it to the validation that comes first."""
        self._behind_validation = False
        step = trainer.global_step
        # gradients that are still being accumulated are in no checkpoint
        stepped, self._seen_step = step != self._seen_step, step
        if not stepped:
            return
        # at the end of training Lightning counts a part of an epoch as a whole one: too late
        ends = is_last_batch(trainer) and not is_end_of_epoch(trainer)
        if not ends and (step % self.checkpoint_every or not self._has_time(trainer)):
            return
        if is_validation_due(trainer):
            self._behind_validation = True
        elif step != self._saved_step:
            log_step(trainer)
            self._save_last(trainer)

    def _has_time(self, trainer: Trainer) -> bool:
        """Rank 0 decides, as all take part in saving."""
        spent = time.monotonic() - self._written
        enough = self._took <= self.share * (self._took + spent)
        return bool(trainer.strategy.broadcast(enough))

    def save_for_stop(self, trainer: Trainer) -> None:
        """Write `last.ckpt` at a step boundary behind which the run stops.

        In front of a validation the one before stays: the resumed run comes to the validation.
        """
        if not (trainer.enable_validation and is_validation_due(trainer)):
            log_step(trainer)
            self._save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write `best.ckpt` when the figure is the best so far, then a `last.ckpt` that waited."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or is_dry_run(trainer):
            return
        if self.monitor not in trainer.callback_metrics:
            names = ", ".join(sorted(map(str, trainer.callback_metrics)))
            raise ValueError(f"monitor={self.monitor}: the validation logged {names or 'nothing'}")
        score = float(trainer.callback_metrics[self.monitor])
        better = self.best_score is None or (
            score > self.best_score if self.mode == "max" else score < self.best_score
        )
        # every rank takes part in saving, so all must take rank 0's decision
        if trainer.strategy.broadcast(better and score == score):
            self.best_score, self.best_step = score, trainer.global_step
            trainer.save_checkpoint(self.folder / "best.ckpt", weights_only=False)
        if self._behind_validation:
            self._behind_validation = False
            self._save_last(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step != self._saved_step:
            self._save_last(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.config is not None:
            checkpoint["pcnn_config"] = dict(self.config)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Refuse other batches than those of the training: its place in an epoch counts them."""
        sampler = getattr(getattr(trainer, "datamodule", None), "train_sampler", None)
        loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        if trainer.state.fn != "fit" or sampler is None:
            return
        now = sampler().fingerprint()
        for before in loop.get("combined_loader", ()):
            for name in BATCHES:
                was = before.get(name, now[name])
                if was != now[name]:
                    raise ConfigError("resume", f"the run has {name}={was}, not {now[name]}")

    def state_dict(self) -> dict[str, Any]:
        """What is best so far."""
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what is best so far, provided that `best.ckpt` is still there."""
        if self.best_model_path:
            for name in STATE:
                setattr(self, name, state_dict[name])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the step resumed from, which needs no second writing."""
        self._seen_step = self._saved_step = trainer.global_step
        loop = trainer.fit_loop
        epochs: Any = loop.epoch_progress.total
        if loop.restarted_mid_epoch and epochs.processed == epochs.ready:
            # saved behind the last batch of an epoch: Lightning completes that epoch, but then
            # takes the next one for a continued one and does not count it as begun, so that a
            # second restart would train it twice
            loop.reset_restart_stage()

    def _save_last(self, trainer: Trainer) -> None:
        if is_dry_run(trainer):
            return
        self._saved_step, began = trainer.global_step, time.monotonic()
        trainer.save_checkpoint(self.folder / "last.ckpt", weights_only=False)
        self._written = time.monotonic()
        self._took = self._written - began
