"""Data sets: labelled clouds, and pairs of clouds, as samples on voxels or native points.

In the order in which a cloud meets them: `cloud_sets` finds a set, real or simulated
(`semantic_kitti`, `s3dis`, `folder`; pairs in `registration`); `readers` read a file as a `cloud`
with `labels`; `cloud_dataset` keeps it in a `cache` and changes it by `transforms`; `placement`
makes it a sample, in the order of `sampler`; `batches` join samples. `preparation` does the first
half ahead of a training, `prediction_files` writes labels.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcnn.datasets.batches import Batch, CloudBatch, CollateSegmentation
    from pcnn.datasets.cloud import Cloud
    from pcnn.datasets.cloud_dataset import CloudDataset, LabelledClouds
    from pcnn.datasets.cloud_sets import CloudSets, DataSource, resolve_source
    from pcnn.datasets.folder import FolderClouds, FolderSets
    from pcnn.datasets.placement import (
        OnPoints,
        OnVoxels,
        Placement,
        Sample,
        voxelize_cloud,
    )
    from pcnn.datasets.readers.clouds import read_points
    from pcnn.datasets.s3dis import S3DISRooms, S3DISSets, S3DISTypeSets
    from pcnn.datasets.semantic_kitti import SemanticKITTI, SemanticKITTISets
    from pcnn.datasets.transforms import Augmentation

__all__ = [
    "Augmentation",
    "Batch",
    "Cloud",
    "CloudBatch",
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
    "Sample",
    "SemanticKITTI",
    "SemanticKITTISets",
    "read_points",
    "resolve_source",
    "voxelize_cloud",
]

_HOMES = {
    "Augmentation": "pcnn.datasets.transforms",
    "Batch": "pcnn.datasets.batches",
    "Cloud": "pcnn.datasets.cloud",
    "CloudDataset": "pcnn.datasets.cloud_dataset",
    "CloudSets": "pcnn.datasets.cloud_sets",
    "CollateSegmentation": "pcnn.datasets.batches",
    "DataSource": "pcnn.datasets.cloud_sets",
    "FolderClouds": "pcnn.datasets.folder",
    "FolderSets": "pcnn.datasets.folder",
    "LabelledClouds": "pcnn.datasets.cloud_dataset",
    "OnPoints": "pcnn.datasets.placement",
    "OnVoxels": "pcnn.datasets.placement",
    "Placement": "pcnn.datasets.placement",
    "S3DISRooms": "pcnn.datasets.s3dis",
    "S3DISSets": "pcnn.datasets.s3dis",
    "S3DISTypeSets": "pcnn.datasets.s3dis",
    "CloudBatch": "pcnn.datasets.batches",
    "Sample": "pcnn.datasets.placement",
    "SemanticKITTI": "pcnn.datasets.semantic_kitti",
    "SemanticKITTISets": "pcnn.datasets.semantic_kitti",
    "read_points": "pcnn.datasets.readers.clouds",
    "resolve_source": "pcnn.datasets.cloud_sets",
    "voxelize_cloud": "pcnn.datasets.placement",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: readers of files need no torch."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
