"""A data set in SemanticKITTI's official layout, small enough to train on within seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROAD, BUILDING, POLE = 40, 50, 80  # raw ids


def write_tiny_kitti(root: Path, scans: dict[int, int], points: int = 300) -> Path:
    """Write `scans[sequence]` labelled scans: a road, a wall and a pole, other in every scan."""
    for sequence, count in scans.items():
        folder = root / "sequences" / f"{sequence:02d}"
        for name in ("velodyne", "labels"):
            (folder / name).mkdir(parents=True)
        for index in range(count):
            cloud, labels = tiny_scan(np.random.default_rng([sequence, index]), points)
            cloud.astype("<f4").tofile(folder / "velodyne" / f"{index:06d}.bin")
            labels.astype("<u4").tofile(folder / "labels" / f"{index:06d}.label")
    return root


def tiny_scan(rng: np.random.Generator, points: int) -> tuple[np.ndarray, np.ndarray]:
    """x, y, z, remission [P, 4] and raw labels [P]."""
    labels = rng.choice([ROAD, BUILDING, POLE], points, p=[0.5, 0.4, 0.1])
    cloud = rng.uniform((-4, -4, -1.8, 0), (4, 4, -1.6, 1), (points, 4))
    wall, pole = labels == BUILDING, labels == POLE
    cloud[wall, 1] = rng.uniform(3, 4)
    cloud[wall, 2] = rng.uniform(-1.5, 2, wall.sum())
    cloud[pole, :2] = rng.uniform(-2, 2, 2)
    cloud[pole, 2] = rng.uniform(-1.5, 2, pole.sum())
    return cloud, labels
