"""Loading of pairs of clouds, of one set or of several at once, such as rooms and drives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

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
from pcnn.errors import UserError
from pcnn.ranges import Count, Length, NonNegative, Seed, Workers

log = logging.getLogger(__name__)

#: FCGF validates on that many pairs at most.
VAL_PAIRS = 400


class PairLoading(ExactLoading):
    """Loaders of `PairBatch`."""

    unit = "pair"
    #: of the network's input, which is a one at every row
    in_channels = 1

    def __init__(
        self,
        *,
        voxel_size: float,
        feature_noise: float,
        max_points: int | None,
        one_pass: bool,
        **loading: Any,
    ) -> None:
        super().__init__(**loading)
        self.voxel_size = voxel_size
        self.feature_noise = feature_noise
        self.max_points = max_points
        self.one_pass = one_pass
        self._pairs: dict[Any, PairDataset] = {}  # that were asked for

    @property
    def source_kind(self) -> Kind:
        """Kind of the pairs, ``simulated`` where some are, or ``real``."""
        simulated = any(pairs.source_kind == "simulated" for pairs in self._known())
        return "simulated" if simulated else "real"

    @property
    def data_root(self) -> Path:
        """The folder that the first pairs are read from; known after `setup` or `pairs`."""
        return self._known()[0].root

    def collate(self) -> Collate:
        """Return what joins pairs into a batch."""
        return CollatePairs(self.geometry, self.voxel_size, self.one_pass)

    def placed(
        self,
        pairs: PairDataset,
        split: Split,
        *,
        augment: PairAugmentation | None,
        limit_train: int | None,
        limit_val: int | None,
        seed: int,
        unit: float = 1.0,
    ) -> PlacedPairs:
        """Samples of the pairs of a split."""
        train = split == "train"
        return PlacedPairs(
            pairs,
            voxel_size=self.voxel_size,
            geometry=self.geometry,
            augment=augment,
            feature_noise=self.feature_noise if train else 0.0,
            max_points=None if split == "test" else self.max_points,
            limit={"train": limit_train, "val": limit_val, "test": None}[split],
            seed=seed if train else 0,
            unit=unit,
        )

    def found(self, sets: PairSets, split: Split, name: str = "") -> PairDataset:
        """The pairs of a split, found once."""
        if (name, split) not in self._pairs:
            self._pairs[name, split] = sets.find(split)
        return self._pairs[name, split]

    def _known(self) -> list[PairDataset]:
        if not self._pairs:
            raise RuntimeError("the data source is known after setup() or pairs()")
        return list(self._pairs.values())


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
        """The pairs of a split, clouds as their files hold them: what an evaluation reads."""
        return self.found(self.sets, split)

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


@dataclass(frozen=True)
class PairSource:
    """Pairs of one kind in a mixed training."""

    sets: PairSets  # of the pairs, pcnn.datasets.registration.ThreeDMatchSets or KITTISets
    cell: Length  # edge of a cell of these clouds [m]; their lengths are divided by it
    augment: PairAugmentation | None = None  # random changes of training pairs in metres, or None
    limit_train: Count | None = None  # number of training pairs, spread over their list
    limit_val: Count | None = None  # number of validation pairs; None takes all

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.augment, PairAugmentation | None):
            raise ValueError(f"augment must be a PairAugmentation or null, got {self.augment!r}")
        if self.augment is not None and self.augment.rotation_growth is not None:
            raise ValueError("rotation_growth: a mixed training has none; give rotation")


class MixedPairsDataModule(PairLoading):
    """Loaders of `PairBatch` with pairs of all sources in every batch, about as many of each.

    Every cloud is divided by the cell of its source, so lengths in a batch are in cells, and
    one network sees rooms and streets at one scale. Validation has every pair of all sources once.
    """

    #: whose thresholds apply: lengths in cells
    benchmark = "cells"

    def __init__(
        self,
        sources: Mapping[str, PairSource],
        *,
        voxel_size: Length = 1.0,
        feature_noise: NonNegative = 0.0,
        max_points: Count | None = None,
        batch_size: Count = 1,
        val_batch_size: Count = 1,
        num_workers: Workers | None = None,
        seed: Seed = 0,
        geometry: Placement | None = None,
        one_pass: bool = False,
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
        if not sources or not all(isinstance(one, PairSource) for one in sources.values()):
            raise ValueError(f"sources must be one PairSource or more by name, got {sources}")
        self.sources = dict(sources)

    def pairs(self, split: Split) -> PairDataset:
        """A mixed set has no protocol of its own."""
        raise UserError(
            "pairs of several sources are not evaluated together.\n"
            "possible: eval.py ckpt_path=CKPT dataset=threedmatch, then dataset=kitti"
        )

    def build(self, split: Split) -> MixedPairs | None:
        """Make the samples of a split; None where no source has pairs for validation or test."""
        parts = {}
        for number, (name, source) in enumerate(self.sources.items()):
            pairs = self.found(source.sets, split, name)
            if not pairs.pairs and split != "train":
                log.warning("%s: %s holds no pairs: there is no %s", name, pairs.name, split)
                continue
            parts[name] = self.placed(
                pairs,
                split,
                augment=source.augment if split == "train" else None,
                limit_train=source.limit_train,
                limit_val=source.limit_val,
                seed=(self.seed + number) % 2**32,  # sources draw different numbers
                unit=source.cell,
            )
        return MixedPairs(parts, alternate=split == "train") if parts else None


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
