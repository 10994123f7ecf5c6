"""Clouds with one label each: samples and batches of a classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.datasets.collate import empty_sample, joined_input
from pcnn.datasets.placement import Placement
from pcnn.datasets.point_batch import PointBatch
from pcnn.datasets.raw_points import RawPoints
from pcnn.datasets.voxels import OnVoxels
from pcnn.geometry import Geometry
from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class ClassificationSample:
    """A cloud on a geometry, and what it is.

    Args:
        geometry: its rows, voxels or native points.
        features: [N, C] float32, inputs of the rows.
        label: class of the cloud, from 0.
        name: identifies the cloud within its set.
        path: the file or folder it comes from.
        points: [P, 3] float32 [m], where they may be placed anew; else None.
        own: the points' own features, likewise.
    """

    geometry: Geometry
    features: Tensor
    label: int
    name: str
    path: str
    points: Tensor | None = None
    own: RawPoints | None = None


class ClassificationBatch(PointBatch):
    """Clouds of a step.

    Args:
        tensor: network input, of one cloud a sample; a single empty one where there is no sample,
            as happens in evaluation on several ranks.
        labels: [B] int64 classes of the clouds.
        names: as in `PointBatch`, with ``paths``, ``points``, ``point_offsets`` and ``own``; a
            batch of training holds no points.
        paths: ...
        points: ...
        point_offsets: ...
        own: ...
    """

    def __init__(
        self,
        tensor: SparseTensor,
        labels: Tensor,
        names: tuple[str, ...],
        paths: tuple[str, ...],
        points: Tensor,
        point_offsets: Tensor,
        own: RawPoints | None = None,
    ) -> None:
        super().__init__(tensor, points, point_offsets, names, paths, own)
        self.labels = labels

    def tensors(self) -> list[Tensor]:
        """Every tensor beside the network's input."""
        return [*super().tensors(), self.labels]

    def _mapped(
        self, tensor: SparseTensor, move: Callable[[Tensor], Tensor]
    ) -> ClassificationBatch:
        return ClassificationBatch(
            tensor,
            move(self.labels),
            self.names,
            self.paths,
            move(self.points),
            move(self.point_offsets),
            self._own_mapped(move),
        )


class CollateClassification:
    """Joins samples into one sparse tensor. A class, so that workers can receive it.

    Args:
        in_channels: channels of the network input, which an empty list cannot tell.
        placement: of the samples; an empty list cannot tell it either. None means voxels.
    """

    def __init__(self, in_channels: int, placement: Placement | None = None) -> None:
        self.in_channels = in_channels
        self.placement = placement or OnVoxels()

    def __call__(self, samples: Sequence[ClassificationSample]) -> ClassificationBatch:
        """Return the batch of the samples, in their order; no samples give one of zero clouds.

        Raises:
            ValueError: as `pcnn.datasets.collate.joined_input`.
        """
        parts = [(s.features, s.geometry, s.path) for s in samples]
        points = [s.points if s.points is not None else torch.empty(0, 3) for s in samples]
        if not samples:
            nothing = empty_sample(self.in_channels, self.placement)
            parts = [(nothing.features, nothing.geometry, nothing.path)]
        return ClassificationBatch(
            joined_input(parts, self.in_channels),
            torch.tensor([s.label for s in samples], dtype=torch.int64),
            tuple(s.name for s in samples),
            tuple(s.path for s in samples),
            torch.cat([torch.empty(0, 3), *points]),
            torch.tensor([0, *map(len, points)]).cumsum(0),
            RawPoints.of_all([s.own for s in samples]),
        )
