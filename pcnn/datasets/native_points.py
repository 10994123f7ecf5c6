"""From a cloud to native points: every row is a point of the cloud, with its own label."""

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
from pcnn.geometry import Neighbourhood, PointSet
from pcnn.hints import check_fields
from pcnn.ops.native_points import native_points
from pcnn.ops.plan import Planner
from pcnn.ranges import Factor
from pcnn.tensor import SparseTensor


@dataclass(frozen=True)
class OnPoints:
    """The points themselves (PointCNN++, 3.2): `pcnn.native_points` of a cloud.

    Args:
        sites: points of strided convolutions, ``nearest`` or ``cell_origin``.
        thin: edge of a cell [m], one number or one per axis, of which only the point nearest to its
            centre becomes a row, with its own features and label; None makes every point a row.
            A prediction for a row holds for all points of its cell.
        outside: as in `pcnn.geometry.Neighbourhood`, with the following four.
        volume: ...
        cell: ...
        metric: ...
        memory: ...
        name: in configurations and reports.

    Raises:
        ValueError: as `pcnn.geometry.Neighbourhood`, or cells to thin by that are none.
    """

    sites: Literal["nearest", "cell_origin"] = "nearest"
    thin: VoxelSize | None = None
    outside: Literal["clamp", "drop"] = "clamp"
    volume: Factor = 1.0
    cell: Factor = 1.0
    metric: Literal["auto", "box"] = "auto"
    memory: float | None = None
    name: Literal["point"] = "point"

    def __post_init__(self) -> None:
        _ = self.neighbourhood  # refuses what does not exist
        check_fields(self)

    @property
    def neighbourhood(self) -> Neighbourhood:
        """How kernels relate the points."""
        rule = self.outside, self.volume, self.cell, self.metric
        return Neighbourhood(*rule, memory=self.memory)

    def place(
        self,
        points: Tensor,
        inputs: Tensor,
        batch: Tensor | None,
        batch_size: int,
        size: VoxelSize,
        planner: Planner | None = None,
    ) -> SparseTensor:
        """Put points of several clouds into cells of ``size``, each where it is."""
        x = native_points(
            points,
            inputs,
            batch,
            size,
            batch_size=batch_size,
            downsampling=self.sites,
            thin=self.thin,
            neighbourhood=self.neighbourhood,
        )
        if planner is not None:
            planner(x.geometry)
        return x

    def row_cell(self, size: VoxelSize) -> VoxelSize | None:
        """Return what the points are thinned by."""
        return self.thin

    def sample(self, cloud: Cloud, size: VoxelSize) -> SegmentationSample:
        """Put the points of a cloud into cells of ``size``, each where it is.

        Raises:
            ValueError: as `pcnn.native_points`, or a label out of range, with the name of the file.
        """
        inputs = torch.cat([cloud.points, cloud.features], dim=1)  # [P, 3 + F]
        try:
            x = self.place(cloud.points, inputs, None, 1, size)
            if cloud.labels is None:
                labels = torch.full((x.geometry.rows,), IGNORE)
            else:
                check_labels(cloud.labels)
                assert isinstance(x.geometry, PointSet)
                assert x.geometry.chosen is not None  # the set was made from points
                labels = cloud.labels[x.geometry.chosen]
        except ValueError as error:
            raise FileError(cloud.path, str(error)) from error
        return SegmentationSample.of(x.geometry, x.features, labels, cloud)

    def kept(self, cloud: Cloud, size: VoxelSize) -> Cloud:
        """Keep every point: they are thinned after augmentation, as in evaluation."""
        return replace(cloud, point_index=None)

    def recipe(self, size: VoxelSize) -> Mapping[str, object]:
        """Nothing but the cropped cloud, whatever the size."""
        return {"geometry": self.name}
