"""The two checkpoints of a run: the last state and the best one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint

from pcnn.callbacks.atomic_io import SUFFIX, AtomicCheckpointIO


def check_plain(value: Any, where: str = "config") -> None:
    """Raise unless `value` is built of dict, list, str, int, float, bool and None alone.

    Raises:
        TypeError: names the first key whose value `torch.load(weights_only=True)` would refuse.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: keys must be strings, got {key!r}")
            check_plain(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_plain(item, f"{where}[{index}]")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise TypeError(
            f"{where} is a {type(value).__name__}; a checkpoint takes plain values only. "
            "Resolve the configuration to a dict first (OmegaConf.to_container(resolve=True))"
        )


def is_dry_run(trainer: Trainer) -> bool:
    """Whether the trainer runs a few batches for show (`fast_dev_run`) and must leave no files."""
    return bool(trainer.fast_dev_run)  # type: ignore[attr-defined]  # set where mypy cannot see it


class Checkpoint(LightningCheckpoint):
    """Keep ``<folder>/last.ckpt`` and ``<folder>/best.ckpt``.

    **When.** `last.ckpt` is due every `checkpoint_every` optimiser steps and is written at a step
    boundary: after the optimiser and scheduler have stepped, before the next batch is fetched.
    Where a validation is due at the same boundary, it runs first and the checkpoint is written
    behind it. The order matters: Lightning never repeats a validation for a state that was saved in
    front of it, so a run killed during validation would otherwise resume behind a validation it
    never had (the best state missed, the curve with a hole). Written behind it, the resumed run
    goes on exactly where the uninterrupted one went on, and a kill during validation repeats the
    steps since the checkpoint before. `last.ckpt` is also written at the end of training, and at
    the next boundary after a SIGTERM (a scheduler's warning), then without waiting for a
    validation.
    `best.ckpt` is written behind every validation whose `monitor` beats all before; it is a whole
    checkpoint as well.

    **How.** Files are written whole (`pcnn.callbacks.atomic_io`): a SIGKILL in mid-write leaves the
    previous file. They hold tensors and plain values only, load with
    ``torch.load(weights_only=True)``, and carry the resolved configuration under ``pcnn_config``,
    so that evaluation and prediction need nothing beside them.

    Args:
        folder: where the files lie, e.g. ``<run folder>/checkpoints``.
        checkpoint_every: optimiser steps between two `last.ckpt`.
        monitor: logged validation figure that decides what is best.
        mode: whether a larger (`max`) or smaller (`min`) figure is better.
        config: resolved configuration as a plain dict; may be set later as attribute `config`.

    Attributes:
        best_model_path: path of `best.ckpt`, empty until there is one.
        last_model_path: path of `last.ckpt`, empty until there is one.
        best_score: figure of `best.ckpt`, or None.

    Raises:
        ValueError: `checkpoint_every` is below 1 or `mode` is unknown; later, when `monitor` was
            not logged by a validation.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint_every: int = 100,
        monitor: str = "val/miou_present",
        mode: Literal["max", "min"] = "max",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1 step, got {checkpoint_every}")
        if mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {mode!r}")
        self.folder = Path(folder)
        self.checkpoint_every = checkpoint_every
        self.monitor = monitor
        self.mode = mode
        self.config = config
        self.best_score: float | None = None
        self.best_step: int | None = None
        self._seen_step = 0  # optimiser steps at the end of the batch before
        self._saved_step = 0  # optimiser steps in the last.ckpt written or resumed from
        self._behind_validation = False  # last.ckpt is due and waits for the validation

    @property
    def best_model_path(self) -> str:
        """Path of the best checkpoint, empty when there is none."""
        path = self.folder / "best.ckpt"
        return str(path) if path.exists() else ""

    @property
    def last_model_path(self) -> str:
        """Path of the last checkpoint, empty when there is none."""
        path = self.folder / "last.ckpt"
        return str(path) if path.exists() else ""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Check the configuration and make writing atomic."""
        if self.config is not None:
            check_plain(self.config)
        if stage != "fit":
            return
        # a writer that was chosen on purpose stays
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = AtomicCheckpointIO()
        if trainer.is_global_zero:
            for name in ("best.ckpt", "last.ckpt"):  # left by a killed process
                (self.folder / (name + SUFFIX)).unlink(missing_ok=True)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write `last.ckpt` when it is due, or leave it to the validation that comes first."""
        self._behind_validation = False
        step = trainer.global_step
        # gradients that are still being accumulated are in no checkpoint
        stepped, self._seen_step = step != self._seen_step, step
        if not stepped:
            return
        if trainer.received_sigterm:
            self._save_last(trainer)
        elif step % self.checkpoint_every == 0:
            loop = trainer.fit_loop
            # the loop's own answer: it knows intervals in steps, epochs and seconds
            fetcher = loop._data_fetcher
            if fetcher is not None and loop.epoch_loop._should_check_val_fx(fetcher):
                self._behind_validation = True
            else:
                self._save_last(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write `best.ckpt` when the figure is the best so far, then a `last.ckpt` that waited."""
        if trainer.state.fn != "fit" or trainer.sanity_checking or is_dry_run(trainer):
            return
        if self.monitor not in trainer.callback_metrics:
            logged = ", ".join(sorted(map(str, trainer.callback_metrics))) or "nothing"
            raise ValueError(
                f"Checkpoint monitors {self.monitor!r}, which the validation did not log; "
                f"logged: {logged}"
            )
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
        """Write the final state."""
        if trainer.global_step != self._saved_step:
            self._save_last(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the configuration."""
        if self.config is not None:
            checkpoint["pcnn_config"] = dict(self.config)

    def state_dict(self) -> dict[str, Any]:
        """Return what is best so far."""
        return {"best_score": self.best_score, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what is best so far, provided that `best.ckpt` is still there."""
        if self.best_model_path:
            self.best_score = state_dict["best_score"]
            self.best_step = state_dict["best_step"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note the step resumed from: it needs no second writing."""
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
        self._saved_step = trainer.global_step
        trainer.save_checkpoint(self.folder / "last.ckpt", weights_only=False)


def load_config(path: str | Path) -> dict[str, Any]:
    """Read the resolved configuration that a checkpoint carries.

    Args:
        path: a file written by `Checkpoint`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file carries no configuration.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if "pcnn_config" not in checkpoint:
        raise ValueError(
            f"{path} carries no configuration ('pcnn_config'); it was not written by a pcnn run"
        )
    config: dict[str, Any] = checkpoint["pcnn_config"]
    return config
