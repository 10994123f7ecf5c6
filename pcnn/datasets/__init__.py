"""Data sets: reading, cropping and augmenting labelled clouds, on voxels or native points."""

from pcnn.datasets.collate import CollateSegmentation
from pcnn.datasets.folder import FolderClouds
from pcnn.datasets.native_points import OnPoints
from pcnn.datasets.placement import Placement
from pcnn.datasets.readers.points import read_points
from pcnn.datasets.samples import Cloud, SegmentationBatch, SegmentationSample
from pcnn.datasets.semantic_kitti import SemanticKITTI
from pcnn.datasets.source import DataSource, resolve_source
from pcnn.datasets.transforms.augment import Augmentation
from pcnn.datasets.voxels import OnVoxels, voxelize_cloud

__all__ = [
    "Augmentation",
    "Cloud",
    "CollateSegmentation",
    "DataSource",
    "FolderClouds",
    "OnPoints",
    "OnVoxels",
    "Placement",
    "SegmentationBatch",
    "SegmentationSample",
    "SemanticKITTI",
    "read_points",
    "resolve_source",
    "voxelize_cloud",
]
