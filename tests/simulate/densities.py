"""How densely points lie: neighbours of a voxel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
