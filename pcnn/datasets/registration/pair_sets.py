"""The pairs that `dataset=` chooses for training, validation and test, real or simulated."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_args

from annotated_types import Len, MinLen

from pcnn.datasets.cloud_sets import DataSource, Published, Split, parts_there
from pcnn.datasets.registration.kitti_pairs import SPLITS, KITTIOdometry, poses_file
from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.threedmatch import (
    LISTED,
    OVERLAP,
    VAL_SCENES,
    FCGFPairs,
    IndoorPairs,
    ThreeDMatch,
)
from pcnn.ranges import Distance, Natural, PartialShare

log = logging.getLogger(__name__)

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

#: Lists of training pairs: Predator's, FCGF's, or those that are there.
TrainPairs = Literal["auto", "predator", "fcgf"]


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
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.resolve_source
    data_dir: str = "data"  # folder for the default root and for simulated sets
    pair_list: str = "3DMatch"  # test pairs, 3DMatch or 3DLoMatch
    scenes: Sequence[str] | None = None  # of the test pairs; None takes those that are there
    benchmarks: str | None = None  # folder with LIST/SCENE/gt.log; None looks below the root
    train_pairs: TrainPairs = "auto"  # lists of training and validation: predator
    overlap: PartialShare = OVERLAP
    allow_missing: bool = False
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs

    def __post_init__(self) -> None:
        if self.train_pairs not in get_args(TrainPairs):
            raise ValueError(
                f"train_pairs must be one of {', '.join(get_args(TrainPairs))}, got "
                f"{self.train_pairs!r}"
            )

    @property
    def benchmark(self) -> str:
        """``threedmatch``."""
        return "threedmatch"

    def find(self, split: Split) -> PairDataset:
        """Find the pairs of a split; see `PairSets`."""
        if split == "test":
            root = self._tested.root
            return ThreeDMatch(root, self.pair_list, self.scenes, self.benchmarks)
        pairs = self._listed(self._trained.root, split)
        if self.allow_missing:
            for note in pairs.notes():
                log.warning("%s", note)
        return pairs

    # each is found once: the log tells it once
    @cached_property
    def _tested(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate)

    @cached_property
    def _trained(self) -> DataSource:
        return _FRAGMENTS.found(self.root, self.source, self.data_dir, self.simulate_train)

    def _listed(self, root: Path, split: Split) -> IndoorPairs | FCGFPairs:
        """The pairs of the lists that are asked for, or there."""
        missing = self.allow_missing
        lists = next(root.glob(f"*{LISTED}.txt"), None)
        if self.train_pairs == "predator" or (self.train_pairs == "auto" and lists is None):
            return IndoorPairs(root, split, self.overlap, missing)
        if split == "train":
            return FCGFPairs(root, without=VAL_SCENES, allow_missing=missing)
        there = [scene for scene in VAL_SCENES if any(root.glob(f"{scene}*{LISTED}.txt"))]
        if 0 < len(there) < len(VAL_SCENES):
            log.warning("%s: %d of FCGF's %d validation scenes", root, len(there), len(VAL_SCENES))
        return FCGFPairs(root, there or VAL_SCENES, allow_missing=missing)


@dataclass(frozen=True)
class KITTISets:
    """Pairs of KITTI odometry, or of simulated drives in its formats."""

    root: str | None = None  # folder of the set
    source: str = "auto"  # auto, real or simulated; see pcnn.datasets.cloud_sets.resolve_source
    data_dir: str = "data"  # folder for the default root and for simulated sets
    split: Split = "test"  # whose pairs are tested: train, val or test
    ground_truth: str = "legacy"  # legacy, fixed or odometry, of all splits
    poses: str = "odometry"  # odometry or semantic
    metadata: str | None = None  # GeoTransformer's pickle of the tested split
    sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of the tested split
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None  # of 0 to 5
    val_sequences: Sequence[Natural] | None = None  # of 6 and 7; None takes both
    distances: Annotated[Sequence[Distance], Len(2, 2)] | None = None
    allow_missing: bool = False  # use the sequences that are there where some are missing
    simulate: Mapping[str, Any] | None = None  # arguments of the simulator for test pairs
    simulate_train: Mapping[str, Any] | None = None  # the same for training and validation pairs

    @property
    def benchmark(self) -> str:
        """``kitti``."""
        return "kitti"

    def find(self, split: Split) -> KITTIOdometry:
        """Find the pairs of a split; see `PairSets`."""
        tested = split == "test"
        chosen = {
            "train": self.train_sequences,
            "val": self.val_sequences,
            "test": self.sequences,
        }[split]
        metadata = self.metadata
        if metadata is not None and not tested and not Path(metadata).is_dir():
            metadata = None  # a file lists the tested split alone
        found = self._tested if tested else self._trained
        kind, ground_truth, poses = self.split if tested else split, self.ground_truth, self.poses
        if found.kind == "simulated":
            ground_truth, poses, metadata = "odometry", "odometry", None
            if chosen is None and kind in SPLITS:
                # a small set has no scans of some
                chosen = [s for s in SPLITS[kind] if poses_file(found.root, s).is_file()] or None
        elif self.allow_missing and kind in SPLITS:
            wanted = SPLITS[kind] if chosen is None else chosen
            there = partial(self._is_there, found.root, metadata is not None)
            written = parts_there(found.root, split, wanted, there, "sequences", True)
            # none to validate on is no validation; of a test, the error names the files
            chosen = chosen if tested and not written else written
        return KITTIOdometry(
            found.root,
            kind,
            ground_truth,
            poses,
            metadata,
            chosen,
            distances=None if tested else self.distances,
        )

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

    def _is_there(self, root: Path, listed: bool, sequence: int) -> bool:
        """Tell whether a sequence has scans, and poses where no list holds its transforms."""
        poses = poses_file(root, sequence, self.poses)
        scans = root / "sequences" / f"{sequence:02d}" / "velodyne"
        return scans.is_dir() and (listed or poses.is_file())
