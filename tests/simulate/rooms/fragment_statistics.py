"""Numbers that describe a scene of fragments; as a program, of a folder: the stored real ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from pcnn.datasets.density import nearest_distances, neighbours_per_voxel
from pcnn.datasets.readers.fragments import numbered_fragments, read_fragment
from pcnn.datasets.registration.make_gt import read_pose, scene_pairs


def fragment_statistics(folder: Path) -> dict[str, list[float]]:
    """Describe every fragment of a scene, and its pairs.

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


if __name__ == "__main__":
    print(json.dumps(fragment_statistics(Path(sys.argv[1])), indent=1))
