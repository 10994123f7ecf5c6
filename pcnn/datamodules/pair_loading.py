"""Loading of pairs of clouds: what one set and a mix of sets have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pcnn.datamodules.batch_stream import Collate
from pcnn.datamodules.exact_loading import ExactLoading
from pcnn.datasets.cloud_sets import Kind, Split
from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.placed_pairs import CollatePairs, PlacedPairs


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

    def _known(self) -> list[PairDataset]:
        if not self._pairs:
            raise RuntimeError("the data source is known after setup() or pairs()")
        return list(self._pairs.values())
