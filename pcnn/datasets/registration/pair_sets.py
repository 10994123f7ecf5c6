"""The pairs that `dataset=` chooses for training, validation and test, real or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol

from annotated_types import Len, MinLen

from pcnn.datasets.cloud_sets import DataSource, Published, Split
from pcnn.datasets.registration.kitti_pairs import SPLITS, KITTIOdometry, poses_file
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.threedmatch import OVERLAP, IndoorPairs, ThreeDMatch
from pcnn.ranges import Distance, Natural, PartialShare

_FRAGMENTS = Published(
    "3DMatch",
    "threedmatch",
    "pcnn.simulate.rooms.threedmatch.THREEDMATCH",
    "Official fragments and lists: see docs/registration.md",
)
_DRIVES = Published(
    "KITTI odometry",
    "kitti",
    "pcnn.simulate.streets.kitti.KITTI",
    "KITTI odometry: https://www.cvlibs.net/datasets/kitti/eval_odometry.php",
)


class PairSets(Protocol):
    """Pairs by split. Making one reads nothing."""

    @property
    def benchmark(self) -> str:
        """Whose thresholds apply, ``threedmatch`` or ``kitti``."""

    def find(self, split: Split) -> PairDataset:
        """Find the pairs of a split; simulates them where there is no folder.

        Raises:
            FileNotFoundError: files are missing.
            ValueError: an unknown option, or data of the other kind.
        """


@dataclass(frozen=True)
class ThreeDMatchSets:
    """Pairs of indoor fragments, or of simulated rooms in their formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    pair_list: str = "3DMatch"  # test pairs, 3DMatch or 3DLoMatch
    scenes: Sequence[str] | None = None  # of the test pairs; None takes those that are there
    benchmarks: str | None = None  # folder with LIST/SCENE/gt.log; None looks below the root
    overlap: PartialShare = OVERLAP  # training pairs overlap by more
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs
    benchmark = "threedmatch"

    def find(self, split: Split) -> PairDataset:
        if split == "test":
            root = self._tested.root
            return ThreeDMatch(root, self.pair_list, self.scenes, self.benchmarks)
        return IndoorPairs(self._trained.root, split, self.overlap)

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate)

    @cached_property
    def _trained(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate_train)


@dataclass(frozen=True)
class KITTISets:
    """Pairs of KITTI odometry, or of simulated drives in its formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.Published.found
    data_dir: str = "data"  # folder for the default root and for simulated sets
    split: Split = "test"  # whose pairs are tested: train, val or test
    ground_truth: str = "legacy"  # legacy, fixed or odometry, of all splits
    metadata: str | None = None  # GeoTransformer's pickle of the tested split
    sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of the tested split
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of 0 to 5
    val_sequences: Sequence[Natural] | None = None  # of 6 and 7; None takes both
    distances: Annotated[Sequence[Distance], Len(2, 2)] | None = None
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs
    benchmark = "kitti"

    def find(self, split: Split) -> KITTIOdometry:
        tested = split == "test"
        chosen = self.sequences if tested else getattr(self, f"{split}_sequences")
        # a file lists the tested split alone
        listed = self.metadata is not None and (tested or Path(self.metadata).is_dir())
        metadata = self.metadata if listed else None
        found = self._tested if tested else self._trained
        kind, ground_truth = self.split if tested else split, self.ground_truth
        if found.kind == "simulated":
            ground_truth, metadata = "odometry", None
            if chosen is None and kind in SPLITS:
                # a small set has no scans of some
                chosen = [s for s in SPLITS[kind] if poses_file(found.root, s).is_file()] or None
        distances = None if tested else self.distances
        return KITTIOdometry(found.root, kind, ground_truth, metadata, chosen, distances=distances)

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return self._source(self.simulate, self.metadata is None)

    @cached_property
    def _trained(self) -> DataSource:
        listed = self.metadata is not None and Path(self.metadata).is_dir()
        return self._source(self.simulate_train, not listed)

    def _source(self, simulate: Mapping[str, Any] | None, with_poses: bool) -> DataSource:
        required = ["poses"] if with_poses else []
        return _DRIVES.found(self.root, self.source, self.data_dir, simulate, required)
