"""From samples to a batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.datasets.joined_geometry import joined
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.placement import Placement
from pcnn.datasets.raw_points import RawPoints
from pcnn.datasets.samples import Cloud, SegmentationBatch, SegmentationSample
from pcnn.datasets.voxels import OnVoxels
from pcnn.geometry import Geometry
from pcnn.tensor import SparseTensor


class CollateSegmentation:
    """Joins samples into one sparse tensor. A class, so that workers can receive it.

    Args:
        in_channels: channels of the network input, which an empty list cannot tell.
        placement: of the samples; an empty list cannot tell it either. None means voxels.
    """

    def __init__(self, in_channels: int, placement: Placement | None = None) -> None:
        self.in_channels = in_channels
        self.placement = placement or OnVoxels()

    def __call__(self, samples: Sequence[SegmentationSample]) -> SegmentationBatch:
        """Return the batch of the samples, in their order.

        Points of an unlabelled scan among labelled ones are ``IGNORE``. No samples give a batch
        of zero scans whose input is one empty cloud.

        Raises:
            ValueError: a sample with another number of input channels, naming its file, or
                samples on unlike geometries.
        """
        parts = samples or [empty_sample(self.in_channels, self.placement)]
        counts = [len(s.points) for s in samples]
        return SegmentationBatch(
            joined_input([(s.features, s.geometry, s.path) for s in parts], self.in_channels),
            torch.cat([s.labels for s in parts]),
            torch.cat([s.points for s in parts]),
            _point_labels(parts),
            torch.tensor([0, *counts]).cumsum(0),
            tuple(s.name for s in samples),
            tuple(s.path for s in samples),
            _point_index(parts),
            tuple(s.n_points_total for s in samples),
            RawPoints.of_all([s.own for s in parts]),
        )


def empty_sample(in_channels: int, placement: Placement) -> SegmentationSample:
    """Return a sample of no points, from which a batch of no samples is made."""
    nothing = torch.empty(0, in_channels)
    none = torch.empty(0, dtype=torch.int64)
    cloud = Cloud(nothing[:, :3], nothing[:, 3:], none, "", "", none)
    return placement.sample(cloud, 1.0)


def joined_input(parts: Sequence[tuple[Tensor, Geometry, str]], in_channels: int) -> SparseTensor:
    """Join the inputs of several clouds into one tensor, in their order.

    Args:
        parts: features [N, C], geometry and file of every cloud; at least one.
        in_channels: what C must be.

    Raises:
        ValueError: a cloud with another number of channels, naming its file, or clouds on unlike
            geometries.
    """
    for features, _, path in parts:
        if features.shape[1] != in_channels:
            raise ValueError(
                f"{path}: {features.shape[1]} input channels, the data set has {in_channels}"
            )
    geometry = joined([geometry for _, geometry, _ in parts])
    return SparseTensor(torch.cat([features for features, _, _ in parts]), geometry)


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
