"""Random changes of training clouds."""

from pcnn.datasets.transforms.augment import Augmentation
from pcnn.datasets.transforms.crops import Pieces
from pcnn.datasets.transforms.features import Chromatic, Elastic, Remission
from pcnn.datasets.transforms.mixes import LaserMix, OneOf, PolarMix

__all__ = [
    "Augmentation",
    "Chromatic",
    "Elastic",
    "LaserMix",
    "OneOf",
    "Pieces",
    "PolarMix",
    "Remission",
]
