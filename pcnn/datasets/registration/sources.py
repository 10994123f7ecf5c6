"""The pairs that `dataset=` chooses: real ones, or simulated ones where there are none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from pcnn.datasets.registration.kitti_odometry import KITTIOdometry
from pcnn.datasets.registration.kitti_pair_rule import SPLITS
from pcnn.datasets.registration.threedmatch_training import (
    LISTED,
    OVERLAP,
    VAL_SCENES,
    FCGFPairs,
    IndoorPairs,
)
from pcnn.datasets.source import DataSource, resolve_source
from pcnn.simulate import VERSION, simulate_kitti

log = logging.getLogger(__name__)

#: Whose lists of training pairs are read.
TrainPairs = Literal["auto", "predator", "fcgf"]

# arguments of simulators that change nothing in what is written
_MANNER = ("workers", "progress")

_INDOOR_STEPS = "Official fragments and lists: see docs/registration.md"
_DRIVE_STEPS = "KITTI odometry: https://www.cvlibs.net/datasets/kitti/eval_odometry.php"


def threedmatch_source(
    root: str | None = None,
    source: str = "auto",
    data_dir: str = "data",
    simulate: Mapping[str, Any] | None = None,
) -> DataSource:
    """Where 3DMatch lies; simulated rooms in its formats where there is none.

    Args:
        root: folder of the set; None looks for DATA_DIR/threedmatch.
        source: ``auto``, ``real`` or ``simulated``.
        data_dir: parent of default folders.
        simulate: arguments of the simulator (`simulate_fragments`).

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option, or data of the other kind.
    """
    from pcnn.simulate.interiors.fragments import simulate_fragments
    from pcnn.simulate.interiors.version import VERSION as INTERIORS

    settings = dict(simulate or {})
    return resolve_source(
        "3DMatch",
        root,
        source,
        Path(data_dir) / "threedmatch",
        _simulated_root(data_dir, "threedmatch", settings, INTERIORS),
        partial(simulate_fragments, **settings),
        (),
        _INDOOR_STEPS,
    )


def threedmatch_training_pairs(
    found: DataSource,
    split: str,
    train_pairs: TrainPairs = "auto",
    overlap: float = OVERLAP,
    allow_missing: bool = False,
) -> IndoorPairs | FCGFPairs:
    """Training or validation pairs of 3DMatch.

    Args:
        found: where the set lies.
        split: ``train`` or ``val``.
        train_pairs: ``predator`` (lists of fragments in frames of their own, also GeoTransformer's
            and simulated ones), ``fcgf`` (text lists of .npz clouds in one frame a scene; its
            validation scenes are FCGF's), or ``auto``: ``fcgf`` where such lists lie in the root.
        overlap: of ``predator``: pairs that overlap by no more are left out.
        allow_missing: leave out pairs whose clouds are not there.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option.
    """
    if train_pairs not in get_args(TrainPairs):
        raise ValueError(
            f"train_pairs must be one of {', '.join(get_args(TrainPairs))}, got {train_pairs!r}"
        )
    pairs = _training_pairs(found.root, split, train_pairs, overlap, allow_missing)
    if allow_missing:
        for note in pairs.notes():
            log.warning("%s", note)
    return pairs


def _training_pairs(
    root: Path, split: str, train_pairs: TrainPairs, overlap: float, allow_missing: bool
) -> IndoorPairs | FCGFPairs:
    """The pairs of the lists that are asked for, or there."""
    lists = next(root.glob(f"*{LISTED}.txt"), None)
    if train_pairs == "predator" or (train_pairs == "auto" and lists is None):
        return IndoorPairs(root, split, overlap, allow_missing)
    if split == "train":
        return FCGFPairs(root, without=VAL_SCENES, allow_missing=allow_missing)
    there = [scene for scene in VAL_SCENES if any(root.glob(f"{scene}*{LISTED}.txt"))]
    if 0 < len(there) < len(VAL_SCENES):
        log.warning("%s: %d of FCGF's %d validation scenes", root, len(there), len(VAL_SCENES))
    return FCGFPairs(root, there or VAL_SCENES, allow_missing=allow_missing)


def kitti_source(
    root: str | None = None,
    source: str = "auto",
    data_dir: str = "data",
    simulate: Mapping[str, Any] | None = None,
    with_poses: bool = True,
) -> DataSource:
    """Where KITTI odometry lies; simulated drives in its formats where there is none.

    Args:
        root: folder of the set; None looks for DATA_DIR/kitti.
        source: ``auto``, ``real`` or ``simulated``.
        data_dir: parent of default folders.
        simulate: arguments of the simulator (`simulate_kitti`).
        with_poses: whether ``poses`` must be there.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option, or data of the other kind.
    """
    settings = dict(simulate or {})
    return resolve_source(
        "KITTI odometry",
        root,
        source,
        Path(data_dir) / "kitti",
        _simulated_root(data_dir, "kitti-pairs", settings, VERSION),
        partial(simulate_kitti, **settings),
        ("poses",) if with_poses else (),
        _DRIVE_STEPS,
    )


def kitti_pairs(
    found: DataSource,
    split: str = "test",
    ground_truth: str = "legacy",
    poses: str = "odometry",
    metadata: str | None = None,
    sequences: Sequence[int] | None = None,
    distances: Sequence[float] | None = None,
    allow_missing: bool = False,
) -> KITTIOdometry:
    """Pairs of KITTI odometry, or of simulated drives in its formats.

    The poses of simulated drives are exact, so their ground truth is always ``odometry``.

    Args:
        found: where the set lies.
        split: ``train``, ``val`` or ``test``.
        ground_truth: ``legacy``, ``fixed`` or ``odometry``.
        poses: ``odometry`` or ``semantic``.
        metadata: GeoTransformer's pickle of the split, or the folder of its pickles.
        sequences: some of the split's; None takes all, of simulated drives those that are there.
        distances: as in `KITTIOdometry`.
        allow_missing: leave out sequences whose scans or poses are not there.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option.
    """
    if found.kind == "simulated":
        ground_truth, poses, metadata = "odometry", "odometry", None
        if sequences is None and split in SPLITS:
            # a small set has no scans of some
            written = [s for s in SPLITS[split] if (found.root / f"poses/{s:02d}.txt").is_file()]
            sequences = written or None
    elif allow_missing and split in SPLITS:
        wanted = SPLITS[split] if sequences is None else sequences
        there = [s for s in wanted if _has_drive(found.root, s, poses, metadata)]
        if there and len(there) < len(wanted):
            log.warning("%s: %d of %d sequences of %s", found.root, len(there), len(wanted), split)
        # none to validate on is no validation; otherwise the error names the files
        sequences = there if there or split == "val" else sequences
    return KITTIOdometry(
        found.root, split, ground_truth, poses, metadata, sequences, distances=distances
    )


def _has_drive(root: Path, sequence: int, poses: str, metadata: str | None) -> bool:
    """Whether the scans of a sequence are there, and the poses where no list holds transforms."""
    drive = root / f"sequences/{sequence:02d}"
    file = root / f"poses/{sequence:02d}.txt" if poses == "odometry" else drive / "poses.txt"
    return (drive / "velodyne").is_dir() and (metadata is not None or file.is_file())


def _simulated_root(data_dir: str, name: str, settings: Mapping[str, Any], version: object) -> Path:
    """Where a simulated set lies: its name, what its content hangs on, the simulator's version."""
    told = [f"{key}-{settings[key]}" for key in sorted(settings) if key not in _MANNER]
    return Path(data_dir) / "simulated" / "-".join([name, *told, str(version)])
