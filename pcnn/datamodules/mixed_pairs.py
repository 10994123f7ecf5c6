"""Loading for registration from several sources at once, such as rooms and drives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from pcnn.config.values import check_fields
from pcnn.datamodules.pair_loading import PairLoading
from pcnn.datasets.cloud_sets import Split
from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.mixed_pairs import MixedPairs
from pcnn.datasets.registration.pair_sets import PairSets
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.errors import UserError
from pcnn.ranges import Count, Length, NonNegative, Seed, Workers

log = logging.getLogger(__name__)


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
            pairs = self._of(name, split)
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

    def _of(self, name: str, split: Split) -> PairDataset:
        if (name, split) not in self._pairs:
            self._pairs[name, split] = self.sources[name].sets.find(split)
        return self._pairs[name, split]
