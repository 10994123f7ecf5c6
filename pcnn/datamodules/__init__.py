"""Lightning data modules."""

from pcnn.datamodules.folder import FolderSegmentation
from pcnn.datamodules.kitti import KITTISegmentation
from pcnn.datamodules.registration import RegistrationDataModule
from pcnn.datamodules.segmentation import SegmentationDataModule

__all__ = [
    "FolderSegmentation",
    "KITTISegmentation",
    "RegistrationDataModule",
    "SegmentationDataModule",
]
