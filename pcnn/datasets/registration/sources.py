"""The pairs that `dataset=` chooses: real ones, or simulated ones where there are none."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from pcnn.datasets.registration.fcgf_pairs import OVERLAP as FCGF_OVERLAP
from pcnn.datasets.registration.fcgf_pairs import VAL_SCENES, FCGFPairs
from pcnn.datasets.registration.indoor_pairs import OVERLAP, IndoorPairs
from pcnn.datasets.registration.kitti_odometry import KITTIOdometry
from pcnn.datasets.registration.kitti_pair_rule import SPLITS
from pcnn.datasets.registration.threedmatch import ThreeDMatch
from pcnn.datasets.simulate import VERSION, simulate_kitti
from pcnn.datasets.source import DataSource, resolve_source

log = logging.getLogger(__name__)

#: Whose lists of training pairs are read.
TrainPairs = Literal["auto", "predator", "fcgf"]

_INDOOR_STEPS = "Official fragments and lists: see docs/registration.md"
_DRIVE_STEPS = "KITTI odometry: https://www.cvlibs.net/datasets/kitti/eval_odometry.php"


def threedmatch_pairs(
    root: str | None = None,
    source: str = "auto",
    data_dir: str = "data",
    pair_list: str = "3DMatch",
    scenes: Sequence[str] | None = None,
    benchmarks: str | None = None,
    simulate: Mapping[str, Any] | None = None,
) -> ThreeDMatch:
    """Test pairs of 3DMatch or 3DLoMatch; simulated rooms in their formats where there are none.

    Args:
        root: folder of the set; None looks for DATA_DIR/threedmatch.
        source: ``auto``, ``real`` or ``simulated``.
        data_dir: parent of default folders.
        pair_list: ``3DMatch`` or ``3DLoMatch``.
        scenes: names; None takes those that are there.
        benchmarks: folder with LIST/SCENE/gt.log; None looks below the root.
        simulate: arguments of the simulator (`simulate_fragments`).

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option, or data of the other kind.
    """
    found = _threedmatch_source(root, source, data_dir, simulate)
    return ThreeDMatch(found.root, pair_list, scenes, benchmarks)


def threedmatch_training_pairs(
    split: str,
    root: str | None = None,
    source: str = "auto",
    data_dir: str = "data",
    train_pairs: TrainPairs = "auto",
    overlap: float = OVERLAP,
    simulate: Mapping[str, Any] | None = None,
) -> IndoorPairs | FCGFPairs:
    """Training or validation pairs of 3DMatch; simulated rooms where there are none.

    Args:
        split: ``train`` or ``val``.
        root: folder of the set; None looks for DATA_DIR/threedmatch.
        source: ``auto``, ``real`` or ``simulated``.
        data_dir: parent of default folders.
        train_pairs: ``predator`` (lists of fragments in frames of their own, also GeoTransformer's
            and simulated ones), ``fcgf`` (text lists of .npz clouds in one frame a scene; its
            validation scenes are FCGF's), or ``auto``: ``fcgf`` where such lists lie in the root.
        overlap: of ``predator``: pairs that overlap by no more are left out.
        simulate: arguments of the simulator (`simulate_fragments`).

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option, or data of the other kind.
    """
    if train_pairs not in get_args(TrainPairs):
        raise ValueError(
            f"train_pairs must be one of {', '.join(get_args(TrainPairs))}, got {train_pairs!r}"
        )
    found = _threedmatch_source(root, source, data_dir, simulate).root
    lists = next(found.glob(f"*{FCGF_OVERLAP}.txt"), None)
    if train_pairs == "predator" or (train_pairs == "auto" and lists is None):
        return IndoorPairs(found, split, overlap)
    if split == "train":
        return FCGFPairs(found, without=VAL_SCENES)
    there = [scene for scene in VAL_SCENES if any(found.glob(f"{scene}*{FCGF_OVERLAP}.txt"))]
    if 0 < len(there) < len(VAL_SCENES):
        log.warning("%s: %d of FCGF's %d validation scenes", found, len(there), len(VAL_SCENES))
    return FCGFPairs(found, there or VAL_SCENES)


def kitti_pairs(
    root: str | None = None,
    source: str = "auto",
    data_dir: str = "data",
    split: str = "test",
    ground_truth: str = "legacy",
    poses: str = "odometry",
    metadata: str | None = None,
    sequences: Sequence[int] | None = None,
    simulate: Mapping[str, Any] | None = None,
    distances: Sequence[float] | None = None,
) -> KITTIOdometry:
    """Pairs of KITTI odometry; simulated drives in its formats where there are none.

    The poses of simulated drives are exact, so their ground truth is always ``odometry``.

    Args:
        root: folder of the set; None looks for DATA_DIR/kitti.
        source: ``auto``, ``real`` or ``simulated``.
        data_dir: parent of default folders.
        split: ``train``, ``val`` or ``test``.
        ground_truth: ``legacy``, ``fixed`` or ``odometry``.
        poses: ``odometry`` or ``semantic``.
        metadata: GeoTransformer's pickle of the split, or the folder of its pickles.
        sequences: some of the split's; None takes all, of simulated drives those that are there.
        simulate: arguments of the simulator (`simulate_kitti`).
        distances: as in `KITTIOdometry`.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: an unknown option, or data of the other kind.
    """
    settings = dict(simulate or {})
    found = resolve_source(
        "KITTI odometry",
        root,
        source,
        Path(data_dir) / "kitti",
        _simulated_root(data_dir, "kitti-pairs", settings, VERSION),
        partial(simulate_kitti, **settings),
        () if metadata else ("poses",),
        _DRIVE_STEPS,
    )
    if found.kind == "simulated":
        ground_truth, poses, metadata = "odometry", "odometry", None
        if sequences is None and split in SPLITS:
            # a small set has no scans of some
            written = [s for s in SPLITS[split] if (found.root / f"poses/{s:02d}.txt").is_file()]
            sequences = written or None
    return KITTIOdometry(
        found.root, split, ground_truth, poses, metadata, sequences, distances=distances
    )


def _threedmatch_source(
    root: str | None, source: str, data_dir: str, simulate: Mapping[str, Any] | None
) -> DataSource:
    from pcnn.datasets.simulate.interiors.fragments import simulate_fragments
    from pcnn.datasets.simulate.interiors.version import VERSION as INTERIORS

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


def _simulated_root(data_dir: str, name: str, settings: Mapping[str, Any], version: object) -> Path:
    """Where a simulated set lies: its name, the values of its settings, the simulator's version."""
    values = "-".join(map(str, settings.values()))
    return Path(data_dir) / "simulated" / f"{name}-{values}-{version}"
