"""How densely points lie: neighbours of a voxel, and distances to the nearest other point."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

QUERIES = 500  # points of a cloud whose nearest neighbour is looked for


def neighbours_per_voxel(points: NDArray[np.float32], voxel_size: float) -> float:
    """Return the mean number of occupied voxels in the 3^3 box about an occupied one.

    The centre counts, so a voxel alone has 1. Coordinates are floor(p / voxel_size).

    Args:
        points: [P, 3] finite [m].
        voxel_size: edge [m].

    Returns:
        The mean; NaN without points.

    Raises:
        ValueError: a cloud so wide that its voxels cannot be numbered.
    """
    if not len(points):
        return float("nan")
    places = np.floor(points.astype(np.float64) / voxel_size)
    places -= places.min(0) - 1
    spread = places.max(0) + 2  # an empty layer all round keeps the keys of neighbours apart
    # checked before they are integers: numbers beyond int64 would wrap round silently
    if not spread.prod() <= 2.0**62:
        raise ValueError(
            f"points spread over {' x '.join(f'{n:.6g}' for n in spread)} voxels of {voxel_size} "
            "m: remove stray points, or choose larger voxels"
        )
    cells, extent = places.astype(np.int64), spread.astype(np.int64)
    keys = np.unique((cells[:, 0] * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2])
    steps = np.array([(x * extent[1] + y) * extent[2] for x in (-1, 0, 1) for y in (-1, 0, 1)])
    total = 0
    for step in steps:
        # three voxels above one another have consecutive keys
        total += int(
            (
                np.searchsorted(keys, keys + step + 1, side="right")
                - np.searchsorted(keys, keys + step - 1, side="left")
            ).sum()
        )
    return total / len(keys)


def nearest_distances(points: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return distances [m] from evenly chosen points to the nearest other point.

    Args:
        points: [P, 3] finite [m].

    Returns:
        [min(P, QUERIES)], empty for fewer than two points. Points that coincide are at 0.
    """
    if len(points) < 2:
        return np.zeros(0)
    chosen = np.unique(np.linspace(0, len(points) - 1, QUERIES).astype(np.int64))
    everything = torch.from_numpy(np.ascontiguousarray(points, np.float32))
    found = []
    for part in np.array_split(chosen, max(len(chosen) // 100, 1)):
        rows = torch.from_numpy(part)
        # differences, not the product form, whose rounding is centimetres at 80 m
        distance = torch.cdist(
            everything[rows], everything, compute_mode="donot_use_mm_for_euclid_dist"
        )
        distance[torch.arange(len(rows)), rows] = torch.inf
        found.append(distance.amin(1).double().numpy())
    return np.concatenate(found)
