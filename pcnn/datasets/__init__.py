"""Data sets: reading, cropping and augmenting labelled clouds, on voxels or native points."""

from pcnn.datasets.batches import Batch, CollateSegmentation, SegmentationBatch
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.cloud_dataset import CloudDataset, LabelledClouds
from pcnn.datasets.cloud_sets import CloudSets, DataSource, resolve_source
from pcnn.datasets.folder import FolderClouds, FolderSets
from pcnn.datasets.placement import (
    OnPoints,
    OnVoxels,
    Placement,
    SegmentationSample,
    voxelize_cloud,
)
from pcnn.datasets.readers.points import read_points
from pcnn.datasets.s3dis import S3DISRooms, S3DISSets, S3DISTypeSets
from pcnn.datasets.semantic_kitti import SemanticKITTI, SemanticKITTISets
from pcnn.datasets.transforms import Augmentation

__all__ = [
    "Augmentation",
    "Batch",
    "Cloud",
    "CloudDataset",
    "CloudSets",
    "CollateSegmentation",
    "DataSource",
    "FolderClouds",
    "FolderSets",
    "LabelledClouds",
    "OnPoints",
    "OnVoxels",
    "Placement",
    "S3DISRooms",
    "S3DISSets",
    "S3DISTypeSets",
    "SegmentationBatch",
    "SegmentationSample",
    "SemanticKITTI",
    "SemanticKITTISets",
    "read_points",
    "resolve_source",
    "voxelize_cloud",
]
