"""Simulated fragments against a real scene, described by stored numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.readers.doubts import nearest_distances
from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.make_gt import read_pose, scene_pairs
from pcnn.simulate.rooms.threedmatch import simulate_fragments
from tests.simulate.densities import neighbours_per_voxel

REAL = Path(__file__).parent / "hotel3.json"
SCENE = "threedmatch/sun3d-hotel_umd-maryland_hotel3"


def fragment_statistics(folder: Path) -> dict[str, list[float]]:
    """Describe every fragment of a scene, and its pairs; `hotel3.json` holds those of the real one.

    Returns:
        points; nearest: median distance to the nearest other point [m]; neighbours_0.025 and
        neighbours_0.05: occupied voxels of the 3^3 box; consecutive: overlaps of fragments i and
        i + 1; overlapping: overlaps of all pairs above a tenth.
    """
    files = numbered_fragments(folder)
    clouds = {number: read_fragment(path) for number, path in files.items()}
    poses = {number: read_pose(path) for number, path in files.items()}
    _, shares = scene_pairs(clouds, poses, overlaps=(0.1, 1.0))
    points = [cloud.numpy() for cloud in clouds.values()]
    return {
        "points": [len(cloud) for cloud in points],
        "nearest": [round(float(np.median(nearest_distances(c))), 5) for c in points],
        "neighbours_0.025": [round(neighbours_per_voxel(c, 0.025), 3) for c in points],
        "neighbours_0.05": [round(neighbours_per_voxel(c, 0.05), 3) for c in points],
        "consecutive": [round(v, 4) for (i, j), v in shares.items() if j == i + 1],
        "overlapping": [round(v, 4) for v in shares.values() if v > 0.1],
    }


@pytest.mark.slow
def test_medians_agree_within_a_fifth(tmp_path: Path) -> None:
    root = simulate_fragments(
        tmp_path / "set", train_scenes=6, val_scenes=0, test_scenes=0, fragments=12, progress=False
    )
    scenes = [fragment_statistics(folder) for folder in sorted((root / "data/train").iterdir())]
    real = json.loads(REAL.read_text())
    for name, values in real.items():
        simulated = [value for scene in scenes for value in scene[name]]
        assert np.median(simulated) == pytest.approx(np.median(values), rel=0.2), name


@pytest.mark.data
def test_stored_numbers_are_those_of_the_real_scene(data_root: Path) -> None:
    assert fragment_statistics(data_root / SCENE) == json.loads(REAL.read_text())
