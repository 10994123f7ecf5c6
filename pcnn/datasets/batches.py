"""Batches of clouds: tensors that move together, and how samples are joined into them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pcnn.datasets.cloud import Cloud
from pcnn.datasets.placement import OnVoxels, Placement, Sample, VoxelSize
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

    def __init__(self, **fields: Any) -> None:
        vars(self).update(fields)

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

        def beside(x: Any) -> Any:
            return x if device is None else x.to(device, non_blocking=non_blocking)

        def entering(x: SparseTensor) -> Any:
            if dtype is not None and x.features.dtype != dtype:
                x = x.replace(x.features.to(dtype))
            return beside(x)

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
    """Clouds of a step, with a label a row and a point."""

    tensor: SparseTensor  # input of the network
    labels: Tensor  # [N] int64 labels of the rows
    points: Tensor  # [P, 3] float32 [m], cloud after cloud
    point_labels: Tensor | None = None  # [P] int64, or None when no scan of the batch is labelled
    point_offsets: Tensor  # [B + 1] int64: cloud b has the points offsets[b]..offsets[b + 1]
    n_points: int  # of all clouds, also where points are not in the batch
    names: tuple[str, ...]
    paths: tuple[str, ...]
    raw: Tensor | None = None  # [P, F] features of the points themselves, in evaluation
    placing: tuple[Placement, VoxelSize] | None = None  # by which points are placed again

    @property
    def point_batch(self) -> Tensor:
        """[P] int64: the cloud of every point."""
        counts = self.point_offsets.diff()
        clouds = torch.arange(len(counts), device=counts.device)
        return clouds.repeat_interleave(counts, output_size=len(self.points))

    def placed(self, points: Tensor, planner: Planner | None = None) -> SparseTensor:
        """Put the points of this batch on its geometry again, moved."""
        (placement, size), features = self._placing()
        clouds, number = self.point_batch, max(1, self.batch_size)
        inputs = torch.cat([points, features], dim=1)
        tensor = placement.place(points, inputs, clouds, number, size, planner)
        return tensor.replace(tensor.features.to(self.tensor.features.dtype))

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


@dataclass(frozen=True)
class CollateClouds:
    """Joins samples into one sparse tensor. A class, so that workers can receive it."""

    in_channels: int
    placement: Placement = field(default_factory=OnVoxels)
    voxel_size: VoxelSize | None = None  # with which points may be placed again
    rows_alone: bool = False  # as in a batch of training

    def __call__(self, samples: Sequence[Sample]) -> CloudBatch:
        """Return the batch of the samples, in their order."""
        parts = list(samples) or [self._nothing()]
        clouds, counts = [part.cloud for part in parts], [part.cloud.n_points for part in parts]
        for part in parts:
            if part.features.shape[1] != self.in_channels:
                raise ValueError(
                    f"{part.cloud.path}: {part.features.shape[1]} input channels, the data set has "
                    f"{self.in_channels}"
                )
        geometries: list[Any] = [part.geometry for part in parts]
        if self.rows_alone:
            # nothing leads from the rows back to the points they were made from
            gone = {"chosen": None} if isinstance(geometries[0], PointSet) else {}
            geometries = [replace(g, inverse=None, check=False, **gone) for g in geometries]
        inputs = torch.cat([part.features for part in parts])
        fields: dict[str, Any] = {
            "tensor": SparseTensor(inputs, type(geometries[0]).collate(geometries)),
            "labels": torch.cat([part.labels for part in parts]),
            "names": tuple(sample.cloud.name for sample in samples),
            "paths": tuple(sample.cloud.path for sample in samples),
            "n_points": sum(counts),
        }
        if self.rows_alone:
            none = torch.zeros(len(samples) + 1, dtype=torch.int64)
            return CloudBatch(**fields, points=torch.empty(0, 3), point_offsets=none)
        if any(cloud.labels is not None for cloud in clouds):
            fields["point_labels"] = torch.cat([cloud.labels_or_ignore for cloud in clouds])
        if self.voxel_size is not None:
            fields["raw"] = torch.cat([cloud.features for cloud in clouds])
            fields["placing"] = self.placement, self.voxel_size
        offsets = torch.tensor([0, *counts[: len(samples)]]).cumsum(0)
        points = torch.cat([cloud.points for cloud in clouds])
        return CloudBatch(**fields, points=points, point_offsets=offsets)

    def _nothing(self) -> Sample:
        """A sample of no points, from which a batch of no samples is made."""
        empty = torch.empty(0, self.in_channels)
        none = torch.empty(0, dtype=torch.int64)
        cloud = Cloud(empty[:, :3], empty[:, 3:], none, "", "", none)
        return self.placement.sample(cloud, 1.0)
