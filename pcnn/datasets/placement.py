"""Where the rows of a network's input lie: what `geometry=` chooses in a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import torch
from annotated_types import Len
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.geometry import Geometry, quantize
from pcnn.ops.plan import Planner
from pcnn.ranges import Length
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

    def sample(self, cloud: Cloud, size: VoxelSize) -> SegmentationSample:
        """Put a cloud, of any number of points, on the geometry.

        Raises:
            ValueError: coordinates or labels that do not serve, with the name of the file.
        """

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        """Put points of several clouds on the geometry, on their device.

        Args:
            points: [P, 3] [m].
            inputs: [P, C] of every point.
            batch: [P] cloud of every point.
            batch_size: number of clouds.
            size: edge of a cell [m].
            planner: of the network that will take the tensor.
        """

    def row_cell(self, size: VoxelSize) -> VoxelSize | None:
        """Return the edge of the cells [m] that become one row each; None: every point is one."""

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Return what a cache keeps of a training cloud, before augmentation."""

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Return the plain values that `kept` depends on."""


@dataclass(frozen=True, eq=False)
class SegmentationSample:
    """A cloud on a geometry with what is needed to score every point of it.

    Args:
        geometry: its rows, voxels or native points; ``geometry.inverse`` [P] gives the row of
            every point.
        features: [N, 3 + F] float32: (x, y, z, features) of a native point, or their mean over the
            points of a voxel.
        labels: [N] int64: a native point's own, or the majority of a voxel's points; ``IGNORE``
            where none is labelled.
        points: [P, 3] float32 [m].
        point_labels: [P] int64 or None.
        name: as in `Cloud`, with ``path``, ``point_index`` and ``n_points_total``.
        path: ...
        point_index: ...
        n_points_total: ...
        raw: the points' own features, where they may be placed again; else None.
    """

    geometry: Geometry
    features: Tensor
    labels: Tensor
    points: Tensor
    point_labels: Tensor | None
    name: str
    path: str
    point_index: Tensor | None
    n_points_total: int
    raw: RawPoints | None = None

    @classmethod
    def of(
        cls, geometry: Geometry, features: Tensor, labels: Tensor, cloud: Cloud
    ) -> SegmentationSample:
        """Make the sample of a cloud from its rows; arguments as in the class."""
        return cls(
            geometry,
            features,
            labels,
            cloud.points,
            cloud.labels,
            cloud.name,
            cloud.path,
            cloud.point_index,
            cloud.n_points_total,
        )


@dataclass(frozen=True, eq=False)
class ClassificationSample:
    """A cloud on a geometry, and its class.

    Args:
        geometry: its rows, voxels or native points.
        features: [N, C] float32, inputs of the rows.
        label: class of the cloud, from 0.
        name: identifies the cloud within its set.
        path: the file or folder it comes from.
        points: [P, 3] float32 [m], where they may be placed again; else None.
        raw: the points' own features, likewise.
    """

    geometry: Geometry
    features: Tensor
    label: int
    name: str
    path: str
    points: Tensor | None = None
    raw: RawPoints | None = None


@dataclass(frozen=True, eq=False)
class RawPoints:
    """The features of the points themselves, and what put the points on their geometry.

    With them, evaluation puts points of a batch on the geometry again: moved, or some of them.

    Args:
        features: [P, F] float32, besides x, y, z.
        voxel_size: edge of a cell of the finest level [m].
        placement: as in `pcnn.datasets.CloudDataset`.
    """

    features: Tensor
    voxel_size: VoxelSize
    placement: Placement

    def placed(
        self,
        points: Tensor,
        rows: Tensor | None,
        scans: Tensor,
        batch_size: int,
        planner: Planner | None,
    ) -> SparseTensor:
        """Put points of the batch on the geometry; inputs are (x, y, z, features).

        Args:
            points: [M, 3] where the chosen points lie now [m].
            rows: [M] int64, the chosen points, 0..P-1; None means all, M = P.
            scans: [P] the cloud of every point.
            batch_size: number of clouds.
            planner: of the network that takes the tensor, or None.
        """
        features = self.features
        if rows is not None:
            features, scans = features[rows], scans[rows]
        inputs = torch.cat([points, features], dim=1)
        return self.placement.place(points, inputs, scans, batch_size, self.voxel_size, planner)

    def fragments(self, points: Tensor, scans: Tensor, batch_size: int) -> Iterator[Tensor]:
        """Yield rows of points of which no two share a row of the input; see `fragments`.

        Where every point is a row, this is one fragment of all.
        """
        cell = self.placement.row_cell(self.voxel_size)
        if cell is not None:
            yield from fragments(points, scans, cell, batch_size)
        elif len(points):
            yield torch.arange(len(points), device=points.device)


def fragments(
    points: Tensor, batch: Tensor | None, cell: float | Sequence[float], batch_size: int = 1
) -> Iterator[Tensor]:
    """Yield the rows of one point a cell, until every point was among them.

    Fragment k holds point ``k mod count`` of every cell, in the points' order, so that each one
    covers the whole cloud, and cells of fewer points repeat theirs. As many fragments as the
    fullest cell has points; works on the device of the points.

    Args:
        points: ``[P, 3]`` [m].
        batch: ``[P]`` cloud of every point; None means one.
        cell: edge of a cell [m], one number or one per axis.
        batch_size: number of clouds.

    Yields:
        ``[N]`` int64 rows, in the order of the cells; none is yielded for no points.

    Raises:
        ValueError: as `pcnn.geometry.quantize`.

    Source: the test mode of Pointcept's GridSample (transform.py).
    """
    inverse = quantize(points, batch, voxel_size=cell, batch_size=batch_size).inverse
    assert inverse is not None  # quantize sets it
    if not len(inverse):
        return
    order = inverse.argsort(stable=True)  # points of a cell beside one another
    counts = torch.bincount(inverse)
    first = counts.cumsum(0) - counts
    for k in range(int(counts.max())):
        yield order[first + k % counts]
