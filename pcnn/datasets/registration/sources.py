"""The pairs that `dataset=` chooses: real ones, or simulated ones where there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pcnn.datasets.registration.kitti_odometry import KITTIOdometry
from pcnn.datasets.registration.threedmatch import ThreeDMatch
from pcnn.datasets.simulate import VERSION, simulate_kitti
from pcnn.datasets.source import resolve_source

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
    from pcnn.datasets.simulate.interiors.fragments import simulate_fragments
    from pcnn.datasets.simulate.interiors.version import VERSION as INTERIORS

    settings = dict(simulate or {})
    found = resolve_source(
        "3DMatch",
        root,
        source,
        Path(data_dir) / "threedmatch",
        _simulated_root(data_dir, "threedmatch", settings, INTERIORS),
        partial(simulate_fragments, **settings),
        (),
        _INDOOR_STEPS,
    )
    return ThreeDMatch(found.root, pair_list, scenes, benchmarks)


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
        metadata: GeoTransformer's pickle of the split.
        sequences: some of the split's.
        simulate: arguments of the simulator (`simulate_kitti`).

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
    return KITTIOdometry(found.root, split, ground_truth, poses, metadata, sequences)


def _simulated_root(data_dir: str, name: str, settings: Mapping[str, Any], version: object) -> Path:
    """Where a simulated set lies: its name, the values of its settings, the simulator's version."""
    values = "-".join(map(str, settings.values()))
    return Path(data_dir) / "simulated" / f"{name}-{values}-{version}"
