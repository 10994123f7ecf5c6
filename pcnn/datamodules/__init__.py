"""Lightning data modules."""

from pcnn.datamodules.clouds import ClassificationDataModule, CloudDataModule
from pcnn.datamodules.mixed_pairs import MixedPairsDataModule, PairSource
from pcnn.datamodules.registration import RegistrationDataModule

__all__ = [
    "ClassificationDataModule",
    "CloudDataModule",
    "MixedPairsDataModule",
    "PairSource",
    "RegistrationDataModule",
]
