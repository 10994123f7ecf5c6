"""Clouds with one label each: samples and batches of a classification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.datasets.collate import empty_sample, joined_input
from pcnn.datasets.placement import Placement
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
    """

    geometry: Geometry
    features: Tensor
    label: int
    name: str
    path: str


class ClassificationBatch:
    """Clouds of a step. Not a dataclass: Lightning would take a dataclass apart.

    Args:
        tensor: network input, of one cloud a sample; a single empty one where there is no sample,
            as happens in evaluation on several ranks.
        labels: [B] int64 classes of the clouds.
        names: B names.
        paths: B files or folders.
    """

    def __init__(
        self,
        tensor: SparseTensor,
        labels: Tensor,
        names: tuple[str, ...],
        paths: tuple[str, ...],
    ) -> None:
        self.tensor = tensor
        self.labels = labels
        self.names = names
        self.paths = paths

    @property
    def batch_size(self) -> int:
        """Number of clouds B."""
        return len(self.names)

    def tensors(self) -> list[Tensor]:
        """Every tensor beside the network's input."""
        return [self.labels]

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> ClassificationBatch:
        """Return the batch on another device; ``dtype`` converts the network input alone."""
        tensor, target = self.tensor, device if device is not None else self.labels.device
        if dtype is not None and tensor.features.dtype != dtype:
            tensor = tensor.replace(tensor.features.to(dtype))
        return self._mapped(
            tensor.to(target, non_blocking=non_blocking),
            lambda t: t.to(target, non_blocking=non_blocking),
        )

    def pin_memory(self) -> ClassificationBatch:
        """Return the batch in page-locked memory."""
        return self._mapped(self.tensor.pin_memory(), lambda t: t.pin_memory())

    def _mapped(
        self, tensor: SparseTensor, move: Callable[[Tensor], Tensor]
    ) -> ClassificationBatch:
        return ClassificationBatch(tensor, move(self.labels), self.names, self.paths)


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
        if not samples:
            nothing = empty_sample(self.in_channels, self.placement)
            parts = [(nothing.features, nothing.geometry, nothing.path)]
        return ClassificationBatch(
            joined_input(parts, self.in_channels),
            torch.tensor([s.label for s in samples], dtype=torch.int64),
            tuple(s.name for s in samples),
            tuple(s.path for s in samples),
        )
