"""What `dataset=` chooses for registration: the pairs of training, validation and test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from annotated_types import Len, MinLen

from pcnn.datasets.registration.pairs import PairDataset
from pcnn.datasets.registration.sources import (
    TrainPairs,
    kitti_pairs,
    kitti_source,
    threedmatch_source,
    threedmatch_training_pairs,
)
from pcnn.datasets.registration.threedmatch import ThreeDMatch
from pcnn.datasets.registration.threedmatch_training import OVERLAP
from pcnn.datasets.source import DataSource
from pcnn.ranges import ArgumentsOf, Distance, Natural, PartialShare

Split = Literal["train", "val", "test"]
_Fragments = Annotated[
    Mapping[str, Any],
    ArgumentsOf("pcnn.simulate.interiors.fragments.simulate_fragments"),
]
_Drives = Annotated[Mapping[str, Any], ArgumentsOf("pcnn.simulate.simulate_kitti")]


class PairSets(Protocol):
    """Pairs by split. Making one reads nothing."""

    @property
    def benchmark(self) -> str:
        """Whose thresholds apply, ``threedmatch`` or ``kitti``."""

    def find(self, split: Split) -> PairDataset:
        """Find the pairs of a split, simulated ones where that is due.

        Raises:
            FileNotFoundError: files are missing.
            ValueError: an unknown option, or data of the other kind.
        """


@dataclass(frozen=True)
class ThreeDMatchSets:
    """Pairs of indoor fragments.

    Args:
        root: folder of the set; None stands for ``data_dir/threedmatch`` where it exists, else for
            simulated rooms (see ``source``).
        source: ``auto``, ``real`` or ``simulated``; see `pcnn.datasets.source.resolve_source`.
        data_dir: folder for the default root and for simulated sets.
        pair_list: test pairs, ``3DMatch`` or ``3DLoMatch``.
        scenes: of the test pairs; None takes those that are there.
        benchmarks: folder with LIST/SCENE/gt.log; None looks below the root.
        train_pairs: lists of training and validation, ``auto``, ``predator`` or ``fcgf``; see
            `threedmatch_training_pairs`.
        overlap: pairs that overlap by no more are neither trained nor validated on.
        allow_missing: train and validate on the scenes that are there where some are missing; the
            test takes those that are there in any case.
        simulate: arguments of `simulate_fragments` for test pairs.
        simulate_train: the same for training and validation pairs.
    """

    root: str | None = None
    source: str = "auto"
    data_dir: str = "data"
    pair_list: str = "3DMatch"
    scenes: Sequence[str] | None = None
    benchmarks: str | None = None
    train_pairs: TrainPairs = "auto"
    overlap: PartialShare = OVERLAP
    allow_missing: bool = False
    simulate: _Fragments | None = None
    simulate_train: _Fragments | None = None
    # what was found, once, of the test pairs (True) and of the others: the log tells it once
    _found: dict[bool, DataSource] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def benchmark(self) -> str:
        """``threedmatch``."""
        return "threedmatch"

    def find(self, split: Split) -> PairDataset:
        """Find the pairs of a split; see `PairSets`."""
        tested = split == "test"
        if tested not in self._found:
            simulate = self.simulate if tested else self.simulate_train
            self._found[tested] = threedmatch_source(
                self.root, self.source, self.data_dir, simulate
            )
        found = self._found[tested]
        if tested:
            return ThreeDMatch(found.root, self.pair_list, self.scenes, self.benchmarks)
        return threedmatch_training_pairs(
            found, split, self.train_pairs, self.overlap, self.allow_missing
        )


@dataclass(frozen=True)
class KITTISets:
    """Pairs of KITTI odometry.

    Args:
        root: folder of the set; None stands for ``data_dir/kitti`` where it exists, else for
            simulated drives (see ``source``).
        source: ``auto``, ``real`` or ``simulated``; see `pcnn.datasets.source.resolve_source`.
        data_dir: folder for the default root and for simulated sets.
        split: whose pairs are tested: ``train``, ``val`` or ``test``.
        ground_truth: ``legacy``, ``fixed`` or ``odometry``, of all splits; simulated drives have
            exact poses, so theirs is always ``odometry``.
        poses: ``odometry`` or ``semantic``.
        metadata: GeoTransformer's pickle of the tested split, or the folder of its pickles, which
            serves training and validation as well.
        sequences: of the tested split; None takes all.
        train_sequences: of 0 to 5; None takes all.
        val_sequences: of 6 and 7; None takes both.
        distances: train and validate on all pairs of scans that are so far apart, lowest and
            highest [m], in place of the published ones; see `KITTIOdometry`.
        allow_missing: use the sequences that are there where some are missing.
        simulate: arguments of `simulate_kitti` for test pairs.
        simulate_train: the same for training and validation pairs.
    """

    root: str | None = None
    source: str = "auto"
    data_dir: str = "data"
    split: Split = "test"
    ground_truth: str = "legacy"
    poses: str = "odometry"
    metadata: str | None = None
    sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None
    train_sequences: Annotated[Sequence[Natural], MinLen(1)] | None = None
    val_sequences: Sequence[Natural] | None = None
    distances: Annotated[Sequence[Distance], Len(2, 2)] | None = None
    allow_missing: bool = False
    simulate: _Drives | None = None
    simulate_train: _Drives | None = None
    # what was found, once, of the test pairs (True) and of the others: the log tells it once
    _found: dict[bool, DataSource] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def benchmark(self) -> str:
        """``kitti``."""
        return "kitti"

    def find(self, split: Split) -> PairDataset:
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
        if tested not in self._found:
            self._found[tested] = kitti_source(
                self.root,
                self.source,
                self.data_dir,
                self.simulate if tested else self.simulate_train,
                with_poses=metadata is None,
            )
        return kitti_pairs(
            self._found[tested],
            self.split if tested else split,
            self.ground_truth,
            self.poses,
            metadata,
            chosen,
            None if tested else self.distances,
            self.allow_missing,
        )
