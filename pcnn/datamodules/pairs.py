"""Loading of pairs of clouds."""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from pcnn.datamodules.batch_stream import Collate
from pcnn.datamodules.exact_loading import ExactLoading
from pcnn.datasets.cloud_sets import Split
from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.pairs import PairDataset, PairSets
from pcnn.datasets.registration.placed_pairs import CollatePairs, PlacedPairs
from pcnn.ranges import Count, Length, NonNegative

log = logging.getLogger(__name__)

#: FCGF validates on that many pairs at most.
VAL_PAIRS = 400


@dataclass(eq=False, repr=False)
class RegistrationDataModule(ExactLoading):
    """Loaders of `PairBatch`, and the sets of pairs behind them."""

    sets: PairSets
    _: KW_ONLY
    voxel_size: Length
    augment: PairAugmentation | None = None
    feature_noise: NonNegative = 0.0
    max_points: Count | None = None
    limit_train: Count | None = None
    limit_val: Count | None = VAL_PAIRS
    one_pass: bool = False
    turn_val: bool = False
    unit = "pair"
    #: of the network's input, which is a one at every row
    in_channels = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pairs: dict[Split, PairDataset] = {}  # that were asked for

    @property
    def benchmark(self) -> str:
        return self.sets.benchmark

    @property
    def source_kind(self) -> str:
        return self._known().source_kind

    @property
    def data_root(self) -> Path:
        return self._known().root

    def _known(self) -> PairDataset:
        if not self._pairs:
            raise RuntimeError("the data source is known after setup() or pairs()")
        return next(iter(self._pairs.values()))

    def collate(self, train: bool) -> Collate:
        return CollatePairs(self.geometry, self.voxel_size, self.one_pass)

    def pairs(self, split: Split) -> PairDataset:
        """The pairs of a split, clouds as their files hold them: what an evaluation reads."""
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
        return PlacedPairs(
            pairs,
            voxel_size=self.voxel_size,
            geometry=self.geometry,
            augment=augment,
            feature_noise=self.feature_noise if train else 0.0,
            max_points=None if split == "test" else self.max_points,
            limit=getattr(self, f"limit_{split}", None),
            seed=self.seed if train else 0,  # runs of all seeds validate on the same
        )
