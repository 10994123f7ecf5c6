"""A training small enough for tests, in which every source of state shows in the weights."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from pcnn.callbacks import Checkpoint, RngState
from pcnn.datamodules.batch_stream import BatchStream, EvaluationLoader, batches_done
from pcnn.datasets.sampler import EpochSampler, EvaluationSampler
from tests.forking import require_fork

SAMPLES = 12


class Keyed(Dataset[torch.Tensor]):
    """Sample (epoch, index) is a row of noise that depends on the key alone."""

    def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1000 * key[0] + key[1])
        return torch.randn(4, generator=generator)


class Data(L.LightningDataModule):
    def __init__(self, num_workers: int = 0, batch_size: int = 2) -> None:
        super().__init__()
        self.num_workers = num_workers
        self.batch_size = batch_size

    def train_sampler(self) -> EpochSampler:
        return EpochSampler(SAMPLES, self.batch_size, seed=1)

    def train_dataloader(self) -> BatchStream:
        return BatchStream(
            Keyed(),
            self.train_sampler(),
            position=lambda: batches_done(self.trainer),
            collate=torch.stack,
            num_workers=self.num_workers,
        )

    def val_dataloader(self) -> EvaluationLoader:
        return EvaluationLoader(Keyed(), EvaluationSampler(3, 3), collate=torch.stack)


class Task(L.LightningModule):
    """Dropout, batch norm, momentum, a schedule; every global generator takes part in the loss."""

    def __init__(self, journal: Path | None = None) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1)
        )
        self.journal = journal

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        noise = random.random() + float(np.random.rand())  # noqa: NPY002 (the global one)
        loss: torch.Tensor = (
            ((self.net(batch) - batch.sum(1, keepdim=True)) * noise).square().mean()
        )
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        torch.rand(5), random.random()  # draws, as a careless validation would
        error = (self.net(batch) - batch.sum(1, keepdim=True)).square().mean()
        self.log("val/score", -error, batch_size=3)

    def on_validation_epoch_end(self) -> None:
        if self.journal is not None and not self.trainer.sanity_checking:
            entry = [self.trainer.global_step, float(self.trainer.callback_metrics["val/score"])]
            with self.journal.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=40)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class Kill(L.Callback):
    """SIGKILL this process at the start of a batch, in a validation, or behind the last step."""

    def __init__(
        self, at_batch: int = -1, in_validation_at_step: int = -1, at_end: bool = False
    ) -> None:
        self.at_batch, self.in_validation_at_step = at_batch, in_validation_at_step
        self.at_end = at_end

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        if batches_done(trainer) == self.at_batch:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_validation_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == self.in_validation_at_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, *_: Any) -> None:
        if self.at_end:
            os.kill(os.getpid(), signal.SIGKILL)


def trainer_for(folder: Path, callbacks: list[L.Callback], **options: Any) -> L.Trainer:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 2,
        "max_steps": 20,
        "default_root_dir": folder,
    }
    return L.Trainer(callbacks=callbacks, **{**defaults, **options})


def train(
    folder: Path,
    *,
    every: int = 4,
    kill: Kill | None = None,
    workers: int = 0,
    seed: int = 3,
    share: float = 1.0,
    also: Sequence[L.Callback] = (),
    **options: Any,
) -> tuple[Task, Checkpoint]:
    """Train into `folder`, from its last.ckpt where there is one."""
    folder.mkdir(exist_ok=True)
    stored = {"model": {"width": 0.5}}
    checkpoint = Checkpoint(folder, every, "val/score", config=stored, share=share)
    task = Task(folder / "validations.jsonl")
    callbacks = [RngState(seed), checkpoint, *([kill] if kill else []), *also]
    trainer = trainer_for(folder, callbacks, **options)
    last = checkpoint.last_model_path or None
    trainer.fit(task, Data(workers), ckpt_path=last, weights_only=True)
    return task, checkpoint


def train_and_die(folder: Path, kill: Kill, **options: Any) -> None:
    """Train in a child process that kills itself with SIGKILL."""
    require_fork()
    child = os.fork()
    if child == 0:
        try:
            train(folder, kill=kill, **options)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child was to die by SIGKILL"
    assert os.WTERMSIG(status) == signal.SIGKILL


def weights(task: Task) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in task.state_dict().items()}


def same_weights(one: Task, other: Task) -> bool:
    mine, theirs = weights(one), weights(other)
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def held(path: Path) -> dict[str, Any]:
    """Content of a checkpoint."""
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def validations(folder: Path) -> dict[int, float]:
    """The last validation of every step."""
    lines = (folder / "validations.jsonl").read_text().splitlines()
    return dict(json.loads(line) for line in lines)
