"""Batches of clouds: tensors that move together, and how samples are joined into them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pcnn.datasets.cloud import Cloud, labels_or_ignore
from pcnn.datasets.placement import OnVoxels, Placement, Sample, VoxelSize, fragments
from pcnn.geometry import PointSet
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

if TYPE_CHECKING:
    from typing_extensions import Self


_TRAINS = (
    "this is a batch of training, which holds rows without their points (or means of cells, from a "
    "cache); take it from an evaluation loader"
)


class Batch:
    """Inputs of a network, tensors beside them, and plain values; a task may add fields.

    `to`, `pin_memory` and `tensors` go through the fields: a SparseTensor is an input of the
    network, also in a tuple; a Tensor lies beside it. Not a dataclass: Lightning would take a
    dataclass apart.
    """

    names: tuple[Any, ...]

    @property
    def batch_size(self) -> int:
        return len(self.names)

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Return the batch on another device; ``dtype`` converts the network's inputs alone."""

        def entering(x: SparseTensor) -> SparseTensor:
            if dtype is not None and x.features.dtype != dtype:
                x = x.replace(x.features.to(dtype))
            return x if device is None else x.to(device, non_blocking=non_blocking)

        def beside(x: Tensor) -> Tensor:
            return x if device is None else x.to(device, non_blocking=non_blocking)

        return self._mapped(entering, beside)

    def pin_memory(self) -> Self:
        return self._mapped(SparseTensor.pin_memory, Tensor.pin_memory)

    def tensors(self) -> list[Tensor]:
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    def _mapped(
        self, entering: Callable[[SparseTensor], SparseTensor], beside: Callable[[Tensor], Tensor]
    ) -> Self:
        def moved(value: Any) -> Any:
            if isinstance(value, SparseTensor):
                return entering(value)
            if isinstance(value, Tensor):
                return beside(value)
            if isinstance(value, tuple) and any(isinstance(x, SparseTensor) for x in value):
                return tuple(map(moved, value))
            return value

        other = copy.copy(self)
        vars(other).update({name: moved(value) for name, value in vars(self).items()})
        return other


class CloudBatch(Batch):
    """Clouds of a step, with a label a row and a point, or a class a cloud."""

    def __init__(
        self,
        tensor: SparseTensor,  # input of the network
        labels: Tensor,  # [N] int64 labels of the rows, or [B] classes of the clouds
        points: Tensor,  # [P, 3] float32 [m], cloud after cloud
        point_labels: Tensor | None,  # [P] int64, or None when no scan of the batch is labelled
        point_offsets: Tensor,  # [B + 1] int64: cloud b has the points offsets[b]..offsets[b + 1]
        names: tuple[str, ...],
        paths: tuple[str, ...],
        point_index: Tensor | None = None,  # [P] int64, position of each point in its file
        n_points_total: tuple[int, ...] = (),  # points in the files
        n_points: int | None = None,  # of all clouds; None: as many as there are in points
        raw: Tensor | None = None,  # [P, F] features of the points themselves, in evaluation
        placing: tuple[Placement, VoxelSize] | None = None,  # by which points are placed again
    ) -> None:
        self.tensor = tensor
        self.labels = labels
        self.points = points
        self.point_labels = point_labels
        self.point_offsets = point_offsets
        self.names = names
        self.paths = paths
        self.point_index = point_index
        self.n_points_total = n_points_total
        self.raw = raw
        self.placing = placing
        self.n_points = len(points) if n_points is None else n_points

    @property
    def point_batch(self) -> Tensor:
        """[P] int64: the cloud of every point."""
        counts = self.point_offsets.diff()
        clouds = torch.arange(len(counts), device=counts.device)
        return clouds.repeat_interleave(counts, output_size=len(self.points))

    def placed(
        self, points: Tensor, rows: Tensor | None = None, planner: Planner | None = None
    ) -> SparseTensor:
        """Put points of this batch on its geometry again, moved or only some of them."""
        (placement, size), features = self._placing()
        clouds, number = self.point_batch, max(1, self.batch_size)
        if rows is not None:
            features, clouds = features[rows], clouds[rows]
        inputs = torch.cat([points, features], dim=1)
        tensor = placement.place(points, inputs, clouds, number, size, planner)
        return tensor.replace(tensor.features.to(self.tensor.features.dtype))

    def fragments(self, points: Tensor) -> Iterator[Tensor]:
        """Yield rows of points of which no two share a row of the input; see `fragments`."""
        (placement, size), _ = self._placing()
        cell = placement.row_cell(size)
        if cell is None:
            every = torch.arange(len(points), device=points.device)
            return iter([every] if len(points) else [])
        return fragments(points, self.point_batch, cell, max(1, self.batch_size))

    def _placing(self) -> tuple[tuple[Placement, VoxelSize], Tensor]:
        if self.placing is None or self.raw is None:
            raise ValueError(f"{self.names}: {_TRAINS}")
        return self.placing, self.raw

    @property
    def inverse(self) -> Tensor:
        """[P] int64: the row of every point."""
        if self.tensor.geometry.inverse is None:
            raise ValueError(f"{self.names}: {_TRAINS}")
        return self.tensor.geometry.inverse

    def scan(self, b: int) -> slice:
        first, last = self.point_offsets[b : b + 2].tolist()
        return slice(first, last)

    def full_scan(self, b: int, values: Tensor, fill: int) -> Tensor:
        """Spread values of this batch's points over all points of scan b's file."""
        if self.point_index is None:
            raise ValueError(f"{self.names[b]}: {_TRAINS}")
        part = self.scan(b)
        full = values.new_full((self.n_points_total[b],), fill)
        full[self.point_index[part]] = values[part]
        return full


class CollateClouds:
    """Joins samples into one sparse tensor. A class, so that workers can receive it."""

    def __init__(
        self,
        in_channels: int,
        placement: Placement | None = None,
        voxel_size: VoxelSize | None = None,  # with which points may be placed again
        rows_alone: bool = False,  # as in a batch of training
    ) -> None:
        self.in_channels = in_channels
        self.placement = placement or OnVoxels()
        self.voxel_size = voxel_size
        self.rows_alone = rows_alone

    def __call__(self, samples: Sequence[Sample]) -> CloudBatch:
        """Return the batch of the samples, in their order."""
        parts = list(samples) or [self._nothing()]
        clouds = [part.cloud for part in parts]
        for part in parts:
            if part.features.shape[1] != self.in_channels:
                raise ValueError(
                    f"{part.cloud.path}: {part.features.shape[1]} input channels, the data set has "
                    f"{self.in_channels}"
                )
        inputs = torch.cat([part.features for part in parts])
        geometries: list[Any] = [part.geometry for part in parts]
        if len(set(map(type, geometries))) > 1:
            raise ValueError("samples of a batch lie on voxels and on native points")
        labels = torch.cat([part.labels.reshape(-1) for part in parts])
        names = tuple(sample.cloud.name for sample in samples)
        paths = tuple(sample.cloud.path for sample in samples)
        totals = tuple(sample.cloud.n_points_total for sample in samples)
        if self.rows_alone:
            # nothing leads from the rows back to the points they were made from
            gone = {"chosen": None} if isinstance(geometries[0], PointSet) else {}
            rows = [replace(g, inverse=None, check=False, **gone) for g in geometries]
            tensor = SparseTensor(inputs, type(rows[0]).collate(rows))
            none = torch.zeros(len(samples) + 1, dtype=torch.int64)
            points = torch.empty(0, 3)
            number = sum(cloud.n_points for cloud in clouds)
            return CloudBatch(
                tensor, labels, points, None, none, names, paths, None, totals, number
            )
        labelled = any(cloud.labels is not None for cloud in clouds)
        own = [labels_or_ignore(cloud.labels, cloud.n_points) for cloud in clouds]
        places = [cloud.point_index for cloud in clouds if cloud.point_index is not None]
        again = self.voxel_size is not None
        return CloudBatch(
            SparseTensor(inputs, type(geometries[0]).collate(geometries)),
            labels,
            torch.cat([cloud.points for cloud in clouds]),
            torch.cat(own) if labelled else None,
            torch.tensor([0, *(sample.cloud.n_points for sample in samples)]).cumsum(0),
            names,
            paths,
            torch.cat(places) if len(places) == len(clouds) else None,
            totals,
            raw=torch.cat([cloud.features for cloud in clouds]) if again else None,
            placing=None if self.voxel_size is None else (self.placement, self.voxel_size),
        )

    def _nothing(self) -> Sample:
        """A sample of no points, from which a batch of no samples is made."""
        empty = torch.empty(0, self.in_channels)
        none = torch.empty(0, dtype=torch.int64)
        cloud = Cloud(empty[:, :3], empty[:, 3:], none, "", "", none)
        return self.placement.sample(cloud, 1.0)
