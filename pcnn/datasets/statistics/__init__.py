"""Statistics of point clouds, real or simulated: numbers that say how a sensor sees a place."""

from pcnn.datasets.statistics.clouds import (
    CloudStatistics,
    Histogram,
    cloud_statistics,
    earth_movers_distance,
)
from pcnn.datasets.statistics.of_set import SetStatistics, read_statistics, set_statistics
from pcnn.datasets.statistics.sources import CloudFile, find_clouds, read_cloud

__all__ = [
    "CloudFile",
    "CloudStatistics",
    "Histogram",
    "SetStatistics",
    "cloud_statistics",
    "earth_movers_distance",
    "find_clouds",
    "read_cloud",
    "read_statistics",
    "set_statistics",
]
