"""Mixes of two LiDAR scans into one training scan."""

from pcnn.datasets.mixes.lasermix import LaserMix
from pcnn.datasets.mixes.one_of import OneOf
from pcnn.datasets.mixes.polarmix import PolarMix

__all__ = ["LaserMix", "OneOf", "PolarMix"]
