"""The statistics of one cloud."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcnn.datasets.statistics.histogram import Histogram
from pcnn.datasets.statistics.neighbours import nearest_distances, neighbours_per_voxel
from pcnn.datasets.statistics.rings import Rings, find_rings

VOXEL_SIZES = (0.05, 0.1)

# the same bins for every set, so that any two can be compared
RANGE_BINS = (0.0, 120.0, 480)
HEIGHT_BINS = (-20.0, 20.0, 800)
REMISSION_BINS = (-0.005, 1.005, 101)  # about hundredths, as KITTI has them
NEAREST_BINS = (0.0, 1.0, 1000)


@dataclass(frozen=True, eq=False)
class CloudStatistics:
    """Numbers of one cloud; lengths in metres.

    Args:
        points: how many.
        range: distances from the origin of the file's frame: the sensor, for a scan.
        height: z.
        remission: as the file has it; None where it holds none.
        nearest: distances from chosen points to the nearest other point.
        neighbours: mean neighbours of a voxel, by voxel size.
        rings: None where the order of the points shows none.
        classes: points by class; None where nothing is labelled.
    """

    points: int
    range: Histogram
    height: Histogram
    remission: Histogram | None
    nearest: Histogram
    neighbours: dict[float, float]
    rings: Rings | None
    classes: dict[str, int] | None


def cloud_statistics(
    points: NDArray[np.float32],
    remission: NDArray[np.float32] | None = None,
    classes: Sequence[str] | NDArray[np.str_] | None = None,
    voxel_sizes: Sequence[float] = VOXEL_SIZES,
) -> CloudStatistics:
    """Measure one cloud.

    Args:
        points: [P, 3] finite, in the order of the file [m]; P may be 0.
        remission: [P].
        classes: [P] name of the class of each point.
        voxel_sizes: edges of the voxels whose neighbours are counted [m].

    Returns:
        Its statistics.

    Raises:
        ValueError: shapes that do not fit, or voxels that cannot be numbered.
    """
    for name, values in (("remission", remission), ("classes", classes)):
        if values is not None and len(values) != len(points):
            raise ValueError(f"{len(points)} points, but {len(values)} {name}")
    labels = None
    if classes is not None:
        names, counts = np.unique(np.asarray(classes), return_counts=True)
        labels = {str(n): int(c) for n, c in zip(names, counts, strict=True)}
    return CloudStatistics(
        points=len(points),
        range=Histogram.of(np.linalg.norm(points.astype(np.float64), axis=1), *RANGE_BINS),
        height=Histogram.of(points[:, 2], *HEIGHT_BINS),
        remission=None if remission is None else Histogram.of(remission, *REMISSION_BINS),
        nearest=Histogram.of(nearest_distances(points), *NEAREST_BINS),
        neighbours={size: neighbours_per_voxel(points, size) for size in voxel_sizes},
        rings=find_rings(points),
        classes=labels,
    )
