"""Loading for registration, whatever the set."""

from __future__ import annotations

import logging
from typing import cast

import lightning.pytorch as pl

from pcnn.datamodules.batch_stream import BatchStream
from pcnn.datamodules.pair_loading import PairLoading
from pcnn.datasets.cloud_sets import Split
from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.pair_sets import PairSets
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.placed_pairs import PlacedPairs
from pcnn.datasets.sampler import EpochSampler, TrainingShare
from pcnn.ranges import Count, Length, NonNegative, Seed, Workers

log = logging.getLogger(__name__)

#: FCGF validates on that many pairs at most.
VAL_PAIRS = 400


class RegistrationDataModule(PairLoading):
    """Loaders of `PairBatch`, and the sets of pairs behind them.

    Training pairs are augmented; validation and test pairs are as their files hold them, but for
    `turn_val`, in the order of their list.
    """

    def __init__(
        self,
        sets: PairSets,
        *,
        voxel_size: Length,
        augment: PairAugmentation | None = None,
        feature_noise: NonNegative = 0.0,
        max_points: Count | None = None,
        batch_size: Count = 1,
        val_batch_size: Count = 1,
        num_workers: Workers | None = None,
        seed: Seed = 0,
        geometry: Placement | None = None,
        limit_train: Count | None = None,
        limit_val: Count | None = VAL_PAIRS,
        one_pass: bool = False,
        turn_val: bool = False,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            val_batch_size=val_batch_size,
            num_workers=num_workers,
            seed=seed,
            geometry=geometry,
            voxel_size=voxel_size,
            feature_noise=feature_noise,
            max_points=max_points,
            one_pass=one_pass,
        )
        self.sets = sets
        self.augment = augment
        self.limit_train = limit_train
        self.limit_val = limit_val
        self.turn_val = turn_val

    @property
    def benchmark(self) -> str:
        """Whose thresholds apply, ``threedmatch`` or ``kitti``."""
        return self.sets.benchmark

    def pairs(self, split: Split) -> PairDataset:
        """Return the pairs of a split, clouds as their files hold them:
        what an evaluation reads.
        """
        if split not in self._pairs:
            self._pairs[split] = self.sets.find(split)
        return self._pairs[split]

    def build(self, split: Split) -> PlacedPairs | None:
        """Make the samples of a split; None where validation or test have no pairs."""
        pairs, train = self.pairs(split), split == "train"
        if not pairs.pairs and not train:
            log.warning("%s holds no pairs: there is no %s", pairs.name, split)
            return None
        augment = self.augment if train else None
        if split == "val" and self.turn_val:
            augment = PairAugmentation(rotation=180.0, uniform_rotations=True)
        return self.placed(
            pairs,
            split,
            augment=augment,
            limit_train=self.limit_train,
            limit_val=self.limit_val,
            seed=self.seed,
        )

    def dataset(self, split: Split) -> PlacedPairs | None:
        """Return the samples of a split, set up on the first call."""
        return cast("PlacedPairs | None", self._built(split))  # made by `build`

    def train_dataloader(self) -> BatchStream:
        """Return the stream of training batches; see `ExactLoading.train_dataloader`."""
        dataset = self.dataset("train")
        if dataset is not None and self.augment is not None and self.augment.rotation_growth:
            sampler = self.train_sampler()
            batches = None if self.trainer is None else batches_of(self.trainer, sampler)
            dataset.share = None if batches is None else TrainingShare(sampler, batches)
        return super().train_dataloader()


def batches_of(trainer: pl.Trainer, sampler: EpochSampler) -> int:
    """Number of batches of a whole training, on each rank."""
    ends = []
    if trainer.max_steps >= 0:
        ends.append(trainer.max_steps * trainer.accumulate_grad_batches)
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        ends.append(trainer.max_epochs * sampler.batches_per_epoch)
    if not ends:
        raise ValueError(
            "rotation_growth is in shares of the training, which has no end: set trainer.max_steps "
            "or trainer.max_epochs"
        )
    return max(min(ends), 1)
