"""Data sets of registration: pairs of clouds with their true transforms."""

from pcnn.datasets.registration.fcgf_pairs import FCGFPairs
from pcnn.datasets.registration.kitti_odometry import KITTIOdometry
from pcnn.datasets.registration.pairs import PairDataset, RegistrationPair
from pcnn.datasets.registration.sources import kitti_pairs, threedmatch_pairs
from pcnn.datasets.registration.threedmatch import ThreeDMatch

__all__ = [
    "FCGFPairs",
    "KITTIOdometry",
    "PairDataset",
    "RegistrationPair",
    "ThreeDMatch",
    "kitti_pairs",
    "threedmatch_pairs",
]
