"""Where the rows of a network's input lie, voxels or native points: what `geometry=` chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Protocol

import numpy as np
import torch
from annotated_types import Len
from torch import Tensor

from pcnn.config.values import check_fields
from pcnn.datasets.cloud import Cloud
from pcnn.datasets.labels import IGNORE
from pcnn.errors import FileError
from pcnn.geometry import Geometry, PointSet, quantize
from pcnn.ops.plan import Planner
from pcnn.ops.voxelize import native_points, reduce_points, voxelize
from pcnn.ranges import Factor, Length
from pcnn.tensor import SparseTensor

VoxelSize = Length | Annotated[Sequence[Length], Len(3, 3)]


class Placement(Protocol):
    """Turns a cloud into a sample on a geometry; `pcnn.datasets.OnVoxels` or `OnPoints`.

    The size given to the methods is the edge of a cell of the finest level [m], one number or one
    per axis: a voxel on one geometry, the unit of kernels on the other.
    """

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    def sample(self, cloud: Cloud, size: VoxelSize) -> Sample:
        """Put a cloud, of any number of points, on the geometry.

        Raises:
            ValueError: coordinates or labels that do not serve, with the name of the file.
        """

    def place(
        self,
        points: Tensor,  # [P, 3] [m]
        inputs: Tensor,  # [P, C] of every point
        batch: Tensor | None,  # [P] cloud of every point; None: there is one
        batch_size: int,  # number of clouds
        size: VoxelSize,  # edge of a cell [m]
        planner: Planner | None = None,  # of the network that will take the tensor
    ) -> SparseTensor:
        """Put points of several clouds on the geometry, on their device."""

    def row_cell(self, size: VoxelSize) -> VoxelSize | None:
        """Return the edge of the cells [m] that become one row each; None: every point is one."""

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Return what a cache keeps of a training cloud, before augmentation."""

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Return the plain values that `kept` depends on."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A cloud on a geometry, with the cloud itself, by which every point of it is scored."""

    geometry: Geometry  # its rows, voxels or native points
    features: Tensor  # [N, 3 + F] float32: (x, y, z, features) of points, or means of voxels
    # [N] int64: of native points, or the majority in a voxel
    labels: Tensor
    cloud: Cloud


@dataclass(frozen=True)
class OnVoxels:
    """Cells that hold points: inputs are means, labels majorities."""

    name: Literal["voxel"] = "voxel"  # in configurations and reports

    def sample(self, cloud: Cloud, size: VoxelSize) -> Sample:
        try:
            grid = quantize(cloud.points, voxel_size=size, batch_size=1)
            assert grid.inverse is not None  # quantize sets it
            labels = torch.full((grid.rows,), IGNORE, device=grid.device)
            if cloud.labels is not None:
                labels = majority(cloud.labels, grid.inverse, grid.rows)
        except ValueError as error:
            raise FileError(cloud.path, str(error)) from error
        return Sample(grid, reduce_points(cloud.inputs, grid, "mean"), labels, cloud)

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor | None,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        return voxelize(
            points, inputs, batch, voxel_size=size, batch_size=batch_size, planner=planner
        )

    def row_cell(self, size: VoxelSize) -> VoxelSize:
        return size

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """The means of the cells with the majority of labels, voxelised again once augmented."""
        sample = self.sample(cloud, size)
        return replace(
            cloud,
            points=sample.features[:, :3].contiguous(),
            features=sample.features[:, 3:].contiguous(),
            labels=None if cloud.labels is None else sample.labels,
            point_index=None,
        )

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        if isinstance(size, (int, float)):
            return {"voxel_size": float(size)}
        return {"voxel_size": list(map(float, size))}


def check_labels(labels: Tensor) -> None:
    low, high = map(int, labels.aminmax()) if len(labels) else (0, 0)
    if not 0 <= low <= high <= IGNORE:
        raise ValueError(f"labels must be train ids 0..254 or {IGNORE}, got {low}..{high}")


def majority(labels: Tensor, rows: Tensor, n: int) -> Tensor:
    """Most frequent label of the points of every row; the smallest one where several are."""
    check_labels(labels)
    # sorted as one number a point; labels rise within a row, IGNORE comes last
    dtype = torch.int32 if n < 1 << 23 else torch.int64
    codes = rows.to(dtype, copy=True).mul_(256).add_(labels).numpy()
    codes.sort()
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    row, label = codes[begins] >> 8, codes[begins] & 255
    # one number that compares by count first, then by smaller label
    score = np.diff(begins, append=len(codes)) * 256 + (255 - label)
    score[label == IGNORE] = 0
    found = np.full(n, IGNORE)
    if len(row):
        first = np.flatnonzero(np.diff(row, prepend=-1))
        best = np.maximum.reduceat(score, first)
        found[row[first]] = np.where(best > 0, 255 - (best & 255), IGNORE)
    return torch.from_numpy(found)


@dataclass(frozen=True)
class OnPoints:
    """The points themselves (PointCNN++, 3.2): `pcnn.native_points` of a cloud."""

    thin: VoxelSize | None = None  # edge of the cells [m] of which each keeps one point
    memory: Factor | None = None  # most that kernel maps of a batch may take [GB]
    name: Literal["point"] = "point"  # in configurations and reports

    def __post_init__(self) -> None:
        check_fields(self)

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor | None,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        x = native_points(
            points, inputs, batch, size, batch_size=batch_size, thin=self.thin, memory=self.memory
        )
        if planner is not None:
            planner(x.geometry)
        return x

    def row_cell(self, size: VoxelSize) -> VoxelSize | None:
        return self.thin

    def sample(self, cloud: Cloud, size: VoxelSize) -> Sample:
        try:
            x = self.place(cloud.points, cloud.inputs, None, 1, size)
            labels = cloud.labels_or_ignore
            check_labels(labels)
        except ValueError as error:
            raise FileError(cloud.path, str(error)) from error
        assert isinstance(x.geometry, PointSet)
        assert x.geometry.chosen is not None  # the set was made from points
        return Sample(x.geometry, x.features, labels[x.geometry.chosen], cloud)

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Every point: they are thinned after augmentation, as in evaluation."""
        return replace(cloud, point_index=None)

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        return {"geometry": self.name}
