"""From a cloud to voxels: inputs by mean, labels by majority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE, check_labels
from pcnn.datasets.placement import SegmentationSample, VoxelSize
from pcnn.errors import FileError
from pcnn.geometry import quantize
from pcnn.ops.plan import Planner
from pcnn.ops.voxelize import reduce_points, voxelize
from pcnn.tensor import SparseTensor


@dataclass(frozen=True)
class OnVoxels:
    """Cells that hold points: inputs are means, labels majorities.

    Args:
        name: in configurations and reports.
    """

    name: Literal["voxel"] = "voxel"

    def sample(self, cloud: Cloud, size: VoxelSize) -> SegmentationSample:
        """Voxelise a cloud; see `voxelize_cloud`."""
        return voxelize_cloud(cloud, size)

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        """Voxelise points of several clouds; inputs are means."""
        return voxelize(
            points, inputs, batch, voxel_size=size, batch_size=batch_size, planner=planner
        )

    def row_cell(self, size: VoxelSize) -> VoxelSize:
        """Return the voxel size."""
        return size

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Keep the means of the cells; augmented ones are voxelised again."""
        return reduce_cloud(cloud, size)

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Return the voxel size."""
        return {
            "voxel_size": float(size) if isinstance(size, (int, float)) else list(map(float, size))
        }


def voxelize_cloud(cloud: Cloud, voxel_size: VoxelSize) -> SegmentationSample:
    """Voxelise a cloud on cells ``floor(p / voxel_size)``.

    Args:
        cloud: any number of points, also none.
        voxel_size: edge of a cell [m].

    Raises:
        ValueError: as `pcnn.geometry.quantize` and `majority`, with the name of the file.
    """
    try:
        grid = quantize(cloud.points, voxel_size=voxel_size, batch_size=1)
        assert grid.inverse is not None  # quantize sets it
        if cloud.labels is None:
            labels = torch.full((grid.rows,), IGNORE)
        else:
            labels = majority(cloud.labels, grid.inverse, grid.rows)
    except ValueError as error:
        raise FileError(cloud.path, str(error)) from error
    inputs = torch.cat([cloud.points, cloud.features], dim=1)  # [P, 3 + F]
    return SegmentationSample.of(grid, reduce_points(inputs, grid, "mean"), labels, cloud)


def reduce_cloud(cloud: Cloud, voxel_size: VoxelSize) -> Cloud:
    """Replace the points of every cell by their mean, with the majority of their labels.

    Returns:
        A cloud of N points sorted by cell, without positions in the file.
    """
    sample = voxelize_cloud(cloud, voxel_size)
    return replace(
        cloud,
        points=sample.features[:, :3].contiguous(),
        features=sample.features[:, 3:].contiguous(),
        labels=None if cloud.labels is None else sample.labels,
        point_index=None,
    )


def majority(labels: Tensor, rows: Tensor, n: int) -> Tensor:
    """Most frequent label of the points of every row; the smallest one where several are.

    Args:
        labels: [P] int64 in 0..254, or ``IGNORE``, which has no vote.
        rows: [P] int64 in 0..n-1.
        n: number of rows.

    Returns:
        [n] int64; ``IGNORE`` where no point has a vote.

    Raises:
        ValueError: a label out of 0..255.
    """
    check_labels(labels)
    votes = labels != IGNORE
    pairs, counts = torch.unique(rows[votes] * 256 + labels[votes], return_counts=True)
    # one number that compares by count first, then by smaller label
    score = counts * 256 + (255 - pairs % 256)
    best = torch.zeros(n, dtype=torch.int64).scatter_reduce_(0, pairs // 256, score, "amax")
    return torch.where(best > 0, 255 - best % 256, IGNORE)
