"""Data sets of registration: pairs of clouds with their true transforms."""

from pcnn.datasets.registration.augment import PairAugmentation
from pcnn.datasets.registration.kitti_pairs import KITTISets
from pcnn.datasets.registration.pairs import PairDataset, PairSets, RegistrationPair
from pcnn.datasets.registration.placed_pairs import CollatePairs, PairBatch, PlacedPairs
from pcnn.datasets.registration.threedmatch import ThreeDMatchSets

__all__ = [
    "CollatePairs",
    "KITTISets",
    "PairAugmentation",
    "PairBatch",
    "PairDataset",
    "PairSets",
    "PlacedPairs",
    "RegistrationPair",
    "ThreeDMatchSets",
]
