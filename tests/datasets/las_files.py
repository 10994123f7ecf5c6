"""Small LAS files of an airborne scanner: coordinates of a map, classes of ASPRS."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np

CORNER = np.array([412_345.0, 5_412_345.0, 812.0])
CODES = (2, 5, 6, 1)
"""Ground, high vegetation, building, unclassified."""


def places(n: int, seed: int = 0) -> np.ndarray:
    """[n, 3] float64 on a grid of millimetres, 40 m wide: classes differ in height."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, [40_000, 40_000, 500], (n, 3)) / 1000
    points[:, 2] += 4 * (np.arange(n) % len(CODES))
    return CORNER + points


def write_las(path: Path, n: int = 40, point_format: int = 7, seed: int = 0) -> laspy.LasData:
    """Write a file whose classes are `CODES` in turn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    version = "1.4" if point_format >= 6 else "1.2"
    header = laspy.LasHeader(point_format=point_format, version=version)
    header.scales, header.offsets = [0.001] * 3, [400_000.0, 5_400_000.0, 0.0]
    las = laspy.LasData(header)
    las.x, las.y, las.z = places(n, seed).T
    las.intensity = (np.arange(n) * 655).astype(np.uint16)
    las.return_number = np.ones(n, dtype=np.uint8)
    las.user_data = (np.arange(n) % 200).astype(np.uint8)
    las.withheld = np.arange(n) % 3 == 0
    if point_format < 6:
        las.scan_angle_rank = (np.arange(n) % 30 - 15).astype(np.int8)
    if {"red", "green", "blue"} <= set(las.point_format.dimension_names):
        las.red, las.green, las.blue = (np.full(n, v, dtype=np.uint16) for v in (65535, 13107, 0))
    las.classification = np.resize(CODES, n).astype(np.uint8)
    las.write(path)
    return las
