"""Loading of pairs of clouds, of one set or of several at once, such as rooms and drives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl

from pcnn.config.values import check_fields
from pcnn.datamodules.batch_stream import BatchStream, Collate
from pcnn.datamodules.exact_loading import ExactLoading
from pcnn.datasets.cloud_sets import Kind, Split
from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.pair_sets import PairSets
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.placed_pairs import CollatePairs, MixedPairs, PlacedPairs
from pcnn.datasets.sampler import EpochSampler, TrainingShare
from pcnn.errors import ConfigError, UserError
from pcnn.ranges import Count, Length, NonNegative, Seed, Workers

log = logging.getLogger(__name__)

#: FCGF validates on that many pairs at most.
VAL_PAIRS = 400


@dataclass(frozen=True)
class PairSource:
    """Pairs of one kind, and how they are changed."""

    sets: PairSets  # of the pairs, pcnn.datasets.registration.ThreeDMatchSets or KITTISets
    cell: Length  # edge of a cell of these clouds [m]; their lengths are divided by it
    augment: PairAugmentation | None = None  # random changes of training pairs in metres, or None
    limit_train: Count | None = None  # number of training pairs, spread over their list
    limit_val: Count | None = None  # number of validation pairs; None takes all

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.augment, PairAugmentation | None):
            raise ValueError(f"augment must be a PairAugmentation or null, got {self.augment!r}")


class RegistrationDataModule(ExactLoading):
    """Loaders of `PairBatch`, and the sets of pairs behind them.

    Training pairs are augmented; validation and test pairs are as their files hold them, but for
    `turn_val`, in the order of their list. Of several sources every training batch has about as
    many pairs of each, and validation has all of each once. Every cloud is divided by the cell of
    its source then: lengths are in cells, and one network sees rooms and streets at one scale.
    """

    unit = "pair"
    #: of the network's input, which is a one at every row
    in_channels = 1

    def __init__(
        self,
        sets: PairSets | None = None,
        *,
        voxel_size: Length,
        sources: Mapping[str, PairSource] | None = None,  # in place of sets
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
        )
        for key, value in (("augment", augment), ("dataset.limit_train", limit_train)):
            if sources and value is not None:
                raise ConfigError(key, "every source has its own")
        if (sets is None) == (not sources):
            raise ValueError(f"either sets or sources must be given, got {sets} and {sources}")
        alone = {"": PairSource(sets, 1.0, augment, limit_train, limit_val)} if sets else {}
        self.sources = dict(sources or alone)
        self.mixed = sets is None
        self.voxel_size = voxel_size
        self.feature_noise = feature_noise
        self.max_points = max_points
        self.one_pass = one_pass
        self.turn_val = turn_val
        self._pairs: dict[tuple[str, Split], PairDataset] = {}  # that were asked for
        growing = [one.augment and one.augment.rotation_growth for one in self.sources.values()]
        if self.mixed and any(growing):
            raise ValueError("rotation_growth: several sources have none; give rotation")

    @property
    def benchmark(self) -> str:
        return "cells" if self.mixed else self.sources[""].sets.benchmark

    @property
    def source_kind(self) -> Kind:
        simulated = any(pairs.source_kind == "simulated" for pairs in self._known())
        return "simulated" if simulated else "real"

    @property
    def data_root(self) -> Path:
        return self._known()[0].root

    def _known(self) -> list[PairDataset]:
        if not self._pairs:
            raise RuntimeError("the data source is known after setup() or pairs()")
        return list(self._pairs.values())

    def collate(self) -> Collate:
        return CollatePairs(self.geometry, self.voxel_size, self.one_pass)

    def pairs(self, split: Split) -> PairDataset:
        """The pairs of a split, clouds as their files hold them: what an evaluation reads."""
        if self.mixed:  # they have no protocol of their own
            raise UserError(
                "pairs of several sources are not evaluated together.\n"
                "possible: eval.py ckpt_path=CKPT dataset=threedmatch, then dataset=kitti"
            )
        return self._found("", split)

    def _found(self, name: str, split: Split) -> PairDataset:
        if (name, split) not in self._pairs:
            self._pairs[name, split] = self.sources[name].sets.find(split)
        return self._pairs[name, split]

    def build(self, split: Split) -> PlacedPairs | MixedPairs | None:
        """Make the samples of a split; None where validation or test have no pairs."""
        parts, train = {}, split == "train"
        for number, (name, source) in enumerate(self.sources.items()):
            pairs, augment = self._found(name, split), source.augment if train else None
            if not pairs.pairs and not train:
                log.warning("%s holds no pairs: there is no %s", pairs.name, split)
                continue
            if split == "val" and self.turn_val:
                augment = PairAugmentation(rotation=180.0, uniform_rotations=True)
            parts[name] = PlacedPairs(
                pairs,
                voxel_size=self.voxel_size,
                geometry=self.geometry,
                augment=augment,
                feature_noise=self.feature_noise if train else 0.0,
                max_points=None if split == "test" else self.max_points,
                limit={"train": source.limit_train, "val": source.limit_val}.get(split),
                # sources draw different numbers; runs of all seeds validate on the same
                seed=(self.seed + number) % 2**32 if train else 0,
                unit=source.cell,
            )
        if not self.mixed:
            return parts.get("")
        return MixedPairs(parts, alternate=train) if parts else None

    def train_dataloader(self) -> BatchStream:
        dataset, augment = self.dataset("train"), next(iter(self.sources.values())).augment
        if dataset is not None and augment is not None and augment.rotation_growth:
            dataset.share = None
            if self.trainer is not None:
                sampler = self.train_sampler()
                dataset.share = TrainingShare(sampler, batches_of(self.trainer, sampler))
        return super().train_dataloader()


def batches_of(trainer: pl.Trainer, sampler: EpochSampler) -> int:
    """Number of batches of a whole training, on each rank."""
    ends = []
    if trainer.max_steps >= 0:
        ends.append(trainer.max_steps * trainer.accumulate_grad_batches)
    if trainer.max_epochs is not None and trainer.max_epochs >= 0:
        ends.append(trainer.max_epochs * sampler.batches_per_epoch)
    if not ends:
        raise ValueError("rotation_growth: the training has no end, such as trainer.max_steps")
    return max(min(ends), 1)
