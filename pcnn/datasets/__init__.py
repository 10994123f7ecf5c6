"""Data sets: labelled clouds, and pairs of clouds, as samples on voxels or native points.

In the order in which a cloud meets them: `cloud_sets` finds a set, real or simulated
(`semantic_kitti`, `s3dis`, `folder`; pairs in `registration`); `readers` read a file as a `cloud`
with `labels` (`label_files`); `cloud_dataset` keeps it in a `cache` and changes it by
`transforms`; `placement` makes it a sample, in the order of `sampler`; `batches` join samples.
`preparation` does the first half ahead of a training.
"""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.datasets.batches import CollateClouds
    from pcnn.datasets.cloud import Cloud
    from pcnn.datasets.cloud_dataset import CloudDataset, LabelledClouds
    from pcnn.datasets.cloud_sets import CloudSets, DataSource
    from pcnn.datasets.folder import FolderSets
    from pcnn.datasets.placement import OnPoints, OnVoxels, Placement
    from pcnn.datasets.readers.clouds import read_points
    from pcnn.datasets.s3dis import S3DISSets
    from pcnn.datasets.semantic_kitti import SemanticKITTISets

__all__ = [
    "Cloud",
    "CloudDataset",
    "CloudSets",
    "CollateClouds",
    "DataSource",
    "FolderSets",
    "LabelledClouds",
    "OnPoints",
    "OnVoxels",
    "Placement",
    "S3DISSets",
    "SemanticKITTISets",
    "read_points",
]

# readers of files need no torch
__getattr__ = late(
    __name__,
    {
        ".batches": ("CollateClouds",),
        ".cloud": ("Cloud",),
        ".cloud_dataset": ("CloudDataset", "LabelledClouds"),
        ".cloud_sets": ("CloudSets", "DataSource"),
        ".folder": ("FolderSets",),
        ".placement": ("OnPoints", "OnVoxels", "Placement"),
        ".readers.clouds": ("read_points",),
        ".s3dis": ("S3DISSets",),
        ".semantic_kitti": ("SemanticKITTISets",),
    },
)
