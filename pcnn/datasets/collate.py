"""From samples to a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pcnn.datasets.labels import IGNORE
from pcnn.datasets.samples import Cloud, SegmentationBatch, SegmentationSample
from pcnn.datasets.voxels import voxelize_cloud
from pcnn.geometry import VoxelGrid
from pcnn.tensor import SparseTensor


class CollateSegmentation:
    """Joins voxelised scans into one sparse tensor. A class, so that workers can receive it.

    Args:
        in_channels: channels of the network input, which an empty list cannot tell.
    """

    def __init__(self, in_channels: int) -> None:
        self.in_channels = in_channels

    def __call__(self, samples: Sequence[SegmentationSample]) -> SegmentationBatch:
        """Return the batch of the samples, in their order.

        Points of an unlabelled scan among labelled ones are ``IGNORE``. No samples give a batch
        of zero scans whose input is one empty cloud.

        Raises:
            ValueError: a sample with another number of input channels, naming its file.
        """
        for sample in samples:
            if sample.features.shape[1] != self.in_channels:
                raise ValueError(
                    f"{sample.path}: {sample.features.shape[1]} input channels, the data set has "
                    f"{self.in_channels}"
                )
        parts = samples or [self._nothing()]
        counts = [len(s.points) for s in samples]
        return SegmentationBatch(
            SparseTensor(
                torch.cat([s.features for s in parts]), VoxelGrid.collate([s.grid for s in parts])
            ),
            torch.cat([s.labels for s in parts]),
            torch.cat([s.points for s in parts]),
            _point_labels(parts),
            torch.tensor([0, *counts]).cumsum(0),
            tuple(s.name for s in samples),
            tuple(s.path for s in samples),
            _point_index(parts),
            tuple(s.n_points_total for s in samples),
        )

    def _nothing(self) -> SegmentationSample:
        nothing = torch.empty(0, self.in_channels)
        none = torch.empty(0, dtype=torch.int64)
        return voxelize_cloud(Cloud(nothing[:, :3], nothing[:, 3:], none, "", "", none), 1.0)


def _point_labels(samples: Sequence[SegmentationSample]) -> torch.Tensor | None:
    if all(s.point_labels is None for s in samples):
        return None
    return torch.cat(
        [
            torch.full((len(s.points),), IGNORE) if s.point_labels is None else s.point_labels
            for s in samples
        ]
    )


def _point_index(samples: Sequence[SegmentationSample]) -> torch.Tensor | None:
    parts = [s.point_index for s in samples if s.point_index is not None]
    return torch.cat(parts) if len(parts) == len(samples) else None
