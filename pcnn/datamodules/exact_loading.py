"""The loaders of every data module: resumed exactly, evaluated exactly, damaged samples skipped."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import lightning.pytorch as pl
import torch
from torch.utils.data import Dataset

from pcnn.cores import available_cores
from pcnn.datamodules.batch_stream import (
    BatchStream,
    Collate,
    EvaluationLoader,
    SampleError,
    batches_done,
)
from pcnn.datasets.cloud_sets import SPLIT_NAMES, Split
from pcnn.datasets.placement import OnVoxels, Placement
from pcnn.datasets.sampler import EpochSampler, EvaluationSampler, Key
from pcnn.errors import UNREADABLE, UserError
from pcnn.messages import counted
from pcnn.ranges import Count, Seed, Workers

log = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]

#: More hardly help: a large scan takes 40 ms of a core, a step 10 ms of a GPU.
MOST = 16
#: On a CPU, whose steps take longer than any sample.
MOST_FOR_CPU = 2
#: So many samples in a row that cannot be read mean that the disk is gone, not that files are bad.
_IN_A_ROW = 20

_SPLITS_OF_STAGE: dict[str | None, tuple[Split, ...]] = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    None: ("train", "val", "test"),
}


@dataclass(eq=False, repr=False, kw_only=True)
class ExactLoading(pl.LightningDataModule, ABC):
    """Loaders of a set with splits, whatever its samples.

    Training is one stream of batches, a pure function of (seed, batches done since the start): an
    interrupted run continues with the batch it would have seen next, and neither the number of
    workers nor validation in between changes it. Under several ranks every rank gets equally many
    batches; the samples of an epoch that do not fill a step on all of them are left out of it.

    Validation and test read every sample exactly once, without padding: a rank that has none left
    gets batches of zero samples.
    """

    #: what a sample is called in messages
    unit = "scan"
    #: what a user can do about a training sample that cannot be read, besides repairing it
    advice = ""

    batch_size: Count = 1
    val_batch_size: Count = 1
    num_workers: Workers | None = None
    seed: Seed = 0
    geometry: Placement = field(default_factory=OnVoxels)
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        super().__init__()
        self._datasets: dict[Split, Any] = {}

    @abstractmethod
    def build(self, split: Split) -> Dataset[Any] | None:
        """Make the data set of a split; None where it has no samples by configuration."""

    @abstractmethod
    def collate(self, train: bool) -> Collate:
        """Return what joins samples, possibly none, into a batch of training or evaluation."""

    @property
    @abstractmethod
    def data_root(self) -> Path:
        """The folder the samples are read from."""

    @property
    def tests_on_validation(self) -> bool:
        return False

    def setup(self, stage: str | None = None) -> None:
        splits = _SPLITS_OF_STAGE[stage]
        found = [self.dataset(split) for split in splits]
        if "train" not in self._datasets and not any(one is not None for one in found):
            raise UserError(
                f"{self.data_root}: the {SPLIT_NAMES[splits[0]]} split has no {self.unit}s to "
                "evaluate.\n"
                "possible: another dataset.root, or a split that has some "
                "(dataset.test_sequences=[8], dataset.test_areas=[5], a folder val or test)"
            )

    @property
    def workers(self) -> int:
        """Worker processes of each loader; less of small sets, unless they are asked for."""
        cores = max(
            1, available_cores() // (1 if self.trainer is None else self.trainer.num_devices)
        )
        if self.num_workers is not None:
            return min(self.num_workers, cores)
        return min(cores - 1, MOST_FOR_CPU if self._device() == "cpu" else MOST)

    def train_dataloader(self) -> BatchStream:
        """Return the stream of training batches, which knows where an interrupted run stopped."""
        sampler, trainer = self.train_sampler(), self.trainer
        if getattr(trainer, "overfit_batches", 0):
            raise UserError("trainer.overfit_batches: dataset.limit_train=N repeats N samples")
        return BatchStream(
            SkipBroken(self.dataset("train"), self.on_error, self.advice),
            sampler,
            position=None if trainer is None else lambda: batches_done(trainer),
            collate=self.collate(train=True),
            **self._loading(sampler.n),
        )

    def train_sampler(self) -> EpochSampler:
        dataset, rank = self.dataset("train"), self._rank()
        if dataset is None:
            raise ValueError(f"no training {self.unit}s are configured")
        # a set of one sample can be trained on, whatever the configured batch size
        n, world = len(dataset), rank.get("world", 1)
        size = min(self.batch_size, max(1, n // world))
        if size < self.batch_size:
            few = f"{counted(n, self.unit)} to train on and {counted(world, 'rank')}"
            log.warning("%s: batches hold %d instead of %d", few, size, self.batch_size)
        return EpochSampler(n, size, seed=self.seed, **rank)

    def val_dataloader(self) -> EvaluationLoader | Sequence[EvaluationLoader]:
        """Return one exact pass over the validation set; an empty list where there is none."""
        return self._evaluation("val")

    def test_dataloader(self) -> EvaluationLoader | Sequence[EvaluationLoader]:
        return self._evaluation("test")

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Give the network input the network's precision (``trainer.precision=64-true``)."""
        if self.trainer is None or self.trainer.lightning_module is None:
            return batch
        dtype = self.trainer.lightning_module.dtype
        return batch.to(dtype=dtype) if isinstance(dtype, torch.dtype) else batch

    def dataset(self, split: Split) -> Any:
        """Return the data set of a split, made on the first call; None where it has no samples."""
        if split not in self._datasets:
            self._datasets[split] = self.build(split)
        return self._datasets[split]

    def _evaluation(self, split: Split) -> EvaluationLoader | Sequence[EvaluationLoader]:
        dataset = self.dataset(split)
        if dataset is None:
            return []
        sampler = EvaluationSampler(len(dataset), self.val_batch_size, **self._rank())
        loading, collate = self._loading(len(sampler)), self.collate(train=False)
        return EvaluationLoader(SkipBroken(dataset), sampler, collate=collate, **loading)

    def _rank(self) -> dict[str, int]:
        one = self.trainer
        return {} if one is None else {"rank": one.global_rank, "world": one.world_size}

    def _loading(self, tasks: int) -> dict[str, Any]:
        workers = self.workers if self.num_workers is not None else min(self.workers, tasks)
        return {"num_workers": workers, "pin_memory": self._device() == "cuda"}

    def _device(self) -> str | None:
        return None if self.trainer is None else self.trainer.strategy.root_device.type


class SkipBroken(Dataset[Any]):
    """A set whose unreadable samples are named, or replaced."""

    def __init__(
        self, dataset: Dataset[Any], on_error: OnError = "raise", advice: str = ""
    ) -> None:
        self._dataset = dataset
        self._tries = _IN_A_ROW if on_error == "skip" else 1
        self._advice = advice
        self._named: set[int] = set()

    def __len__(self) -> int:
        return len(cast(Any, self._dataset))

    def __getitem__(self, key: Key) -> Any:
        """Return the sample of a key, or of the next index whose sample can be read."""
        epoch, first = key
        for step in range(self._tries):
            index = (first + step) % len(self)
            try:
                return self._dataset[(epoch, index)]
            except UNREADABLE as error:
                refused: Exception = error
            except UserError as error:  # no file to repair, or to skip
                raise SampleError(str(error)) from error
            if self._tries > 1 and index not in self._named:
                self._named.add(index)
                log.warning("a sample is left out, and the next one takes its place: %s", refused)
        end = f"repair or remove the file{self._advice}"
        if self._tries > 1:
            end = f"{_IN_A_ROW} samples in a row cannot be read"
        raise SampleError(f"{refused}\n{end}") from refused
