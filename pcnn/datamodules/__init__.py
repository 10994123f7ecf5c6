"""Lightning data modules."""

from pcnn.datamodules.folder import FolderSegmentation
from pcnn.datamodules.kitti import KITTISegmentation
from pcnn.datamodules.registration import RegistrationDataModule
from pcnn.datamodules.s3dis import S3DISClassification, S3DISSegmentation
from pcnn.datamodules.segmentation import SegmentationDataModule

__all__ = [
    "FolderSegmentation",
    "KITTISegmentation",
    "RegistrationDataModule",
    "S3DISClassification",
    "S3DISSegmentation",
    "SegmentationDataModule",
]
