"""A killed and resumed training sees the very batches an uninterrupted one sees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.utils.data import Dataset

from pcnn.datamodules.batch_stream import BatchStream, EvaluationLoader, batches_done
from pcnn.datasets.sampler import EpochSampler, EvaluationSampler
from tests.datamodules.modules import plain_trainer
from tests.forking import require_fork

SAMPLES, STEPS, EVERY = 7, 23, 2


class Keys(Dataset[torch.Tensor]):
    """Every sample is its key, [2] int64."""

    def __getitem__(self, key: tuple[int, int]) -> torch.Tensor:
        return torch.tensor(key)


def stack(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(samples) if samples else torch.empty(0, 2, dtype=torch.int64)


class Loaders(pl.LightningDataModule):
    def __init__(self, num_workers: int, batch_size: int = 1) -> None:
        super().__init__()
        self.num_workers, self.batch_size = num_workers, batch_size

    def train_dataloader(self) -> BatchStream:
        return BatchStream(
            Keys(),
            EpochSampler(SAMPLES, self.batch_size, seed=3),
            position=lambda: batches_done(self.trainer),
            collate=stack,
            num_workers=self.num_workers,
        )

    def val_dataloader(self) -> EvaluationLoader:
        return EvaluationLoader(
            Keys(), EvaluationSampler(3), collate=stack, num_workers=self.num_workers
        )


class Recorder(pl.LightningModule):
    """A weight that every batch moves, with dropout, so that any change of order shows in it."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self.record = record
        self.weight = torch.nn.Parameter(torch.zeros(4))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        line = f"{batches_done(self.trainer)} {batch.tolist()}\n"
        with self.record.open("a") as file:
            file.write(line)
        value = (batch[:, 0] * SAMPLES + batch[:, 1] + 1).float().mean()
        noise = torch.nn.functional.dropout(torch.ones(4), 0.5)
        return ((self.weight - value * noise) ** 2).sum()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        assert batch.shape == (1, 2)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class SaveLast(pl.Callback):
    """Writes last.ckpt every EVERY optimiser steps, with the random state; kills at a batch."""

    def __init__(self, folder: Path, kill_at: int | None, how: str) -> None:
        self.path, self.kill_at, self.how, self.saved = folder / "last.ckpt", kill_at, how, -1

    def state_dict(self) -> dict[str, Any]:
        return {"rng": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng = state["rng"]

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if hasattr(self, "rng"):
            torch.set_rng_state(self.rng)
        # a checkpoint between two accumulated batches would lose the gradients so far
        self.saved = trainer.global_step

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batches_done(trainer) == self.kill_at:
            if self.how == "kill":
                os._exit(9)
            raise InterruptedError("power cut")

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, *rest: Any
    ) -> None:
        if trainer.global_step % EVERY == 0 and trainer.global_step != self.saved:
            self.saved = trainer.global_step
            part = self.path.with_suffix(".part")
            trainer.save_checkpoint(part)
            os.replace(part, self.path)


def train(
    folder: Path, workers: int, options: dict[str, Any], kill_at: int | None, how: str = "kill"
) -> torch.Tensor:
    """Train from last.ckpt where there is one; returns the weight."""
    torch.manual_seed(1)
    options = dict(options)
    data = Loaders(workers, options.pop("batch_size", 1))
    module = Recorder(folder / "keys.txt")
    last = folder / "last.ckpt"
    trainer = plain_trainer(folder, callbacks=[SaveLast(folder, kill_at, how)], **options)
    trainer.fit(module, data, ckpt_path=last if last.exists() else None, weights_only=True)
    return module.weight.detach().clone()


def train_and_die(
    folder: Path, workers: int, options: dict[str, Any], kill_at: int, how: str
) -> None:
    if how == "raise":
        with pytest.raises(InterruptedError):
            train(folder, workers, options, kill_at, how)
        return
    require_fork()
    child = os.fork()
    if child == 0:
        try:
            train(folder, workers, options, kill_at, how)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def seen(folder: Path) -> dict[int, str]:
    """The last batch at each count; a resumed run repeats those after its checkpoint."""
    lines = (folder / "keys.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)  # type: ignore[misc]


CASES = {
    "epochs": {"max_epochs": 4, "limit_val_batches": 0},
    "steps-val-inside": {"max_steps": STEPS, "val_check_interval": 3},
    "steps-val-beyond": {
        "max_steps": STEPS,
        "val_check_interval": 10,
        "check_val_every_n_epoch": None,
    },
    "accumulate": {"max_steps": 9, "accumulate_grad_batches": 2, "limit_val_batches": 0},
    "accumulate-val": {"max_epochs": 4, "accumulate_grad_batches": 3, "val_check_interval": 2},
    "limited": {"max_steps": STEPS, "limit_train_batches": 4},
    "batch-2": {"max_steps": STEPS, "batch_size": 2},
}


@pytest.mark.parametrize(
    ("case", "workers"),
    [
        *((case, 0) for case in CASES),
        # processes cost seconds; these cases hold all that may differ with them
        *((case, 2) for case in ("steps-val-inside", "batch-2")),
    ],
)
@pytest.mark.filterwarnings("ignore::lightning.pytorch.utilities.warnings.PossibleUserWarning")
def test_resume_sees_the_same_batches(tmp_path: Path, case: str, workers: int) -> None:
    options = CASES[case]
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    straight.mkdir()
    broken.mkdir()
    weight = train(straight, 0, options, None)
    # deaths: before any checkpoint, mid-epoch, right after the end of an epoch, twice in one epoch
    for kill_at, how in ((1, "raise"), (5, "kill"), (7, "raise"), (10, "raise"), (14, "raise")):
        train_and_die(broken, workers, options, kill_at, how)
    resumed = train(broken, workers, options, None)
    assert seen(broken) == seen(straight)
    assert torch.equal(resumed, weight)
