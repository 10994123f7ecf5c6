"""What batches of clouds have in common: they move, and their points may be placed anew."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.datasets.raw_points import RawPoints
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

if TYPE_CHECKING:
    from typing_extensions import Self


class PointBatch(ABC):
    """Clouds of a step. Not a dataclass: Lightning would take a dataclass apart.

    Args:
        tensor: network input.
        points: [P, 3] float32 [m], cloud after cloud.
        point_offsets: [B + 1] int64: cloud b has the points ``offsets[b]..offsets[b + 1]``.
        names: B names.
        paths: B files or folders.
        own: the points' own features, which evaluation loaders give; None where the points cannot
            be placed anew.
    """

    def __init__(
        self,
        tensor: SparseTensor,
        points: Tensor,
        point_offsets: Tensor,
        names: tuple[str, ...],
        paths: tuple[str, ...],
        own: RawPoints | None,
    ) -> None:
        self.tensor = tensor
        self.points = points
        self.point_offsets = point_offsets
        self.names = names
        self.paths = paths
        self.own = own

    @property
    def batch_size(self) -> int:
        """Number of clouds B."""
        return len(self.names)

    @property
    def point_batch(self) -> Tensor:
        """[P] int64: the cloud of every point."""
        counts = self.point_offsets.diff()
        clouds = torch.arange(len(counts), device=counts.device)
        return clouds.repeat_interleave(counts, output_size=len(self.points))

    def placed(
        self, points: Tensor, rows: Tensor | None = None, planner: Planner | None = None
    ) -> SparseTensor:
        """Put points of this batch on its geometry anew, moved or only some of them.

        Args:
            points: [M, 3] float32 [m], where the chosen points lie now.
            rows: [M] int64, the chosen points, 0..P-1; None means all, M = P.
            planner: of the network that the tensor will enter, which saves it the work.

        Returns:
            Input of as many clouds as there are in the batch, on the device of the points, with
            (x, y, z, features) as in training; ``geometry.inverse`` [M] is the row of every point.

        Raises:
            ValueError: a batch of training, which does not hold what this needs.
        """
        own, size = self._own(), max(1, self.batch_size)
        tensor = own.placed(points, rows, self.point_batch, size, planner)
        return tensor.replace(tensor.features.to(self.tensor.features.dtype))

    def fragments(self, points: Tensor) -> Iterator[Tensor]:
        """Yield rows of points of which no two share a row of the input, until all had their turn.

        See `pcnn.datasets.fragments.fragments`; where every point is a row, one fragment of all.

        Args:
            points: [P, 3] float32 [m], where the batch's points lie now.

        Raises:
            ValueError: as `placed`.
        """
        return self._own().fragments(points, self.point_batch, max(1, self.batch_size))

    @property
    def point_features(self) -> Tensor:
        """[P, F] float32: the points' own features; raises as `placed`."""
        return self._own().features

    def _own(self) -> RawPoints:
        if self.own is None:
            raise ValueError(
                "the points of a training batch cannot be moved; take the batch from an "
                "evaluation loader"
            )
        return self.own

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> Self:
        """Return the batch on another device; ``dtype`` converts the network input alone."""
        tensor, target = self.tensor, device if device is not None else self.points.device
        if dtype is not None and tensor.features.dtype != dtype:
            tensor = tensor.replace(tensor.features.to(dtype))
        return self._mapped(
            tensor.to(target, non_blocking=non_blocking),
            lambda t: t.to(target, non_blocking=non_blocking),
        )

    def pin_memory(self) -> Self:
        """Return the batch in page-locked memory."""
        return self._mapped(self.tensor.pin_memory(), lambda t: t.pin_memory())

    def tensors(self) -> list[Tensor]:
        """Every tensor beside the network's input."""
        own = [] if self.own is None else [self.own.features]
        return [self.points, self.point_offsets, *own]

    def _own_mapped(self, move: Callable[[Tensor], Tensor]) -> RawPoints | None:
        return None if self.own is None else self.own.with_features(move(self.own.features))

    @abstractmethod
    def _mapped(self, tensor: SparseTensor, move: Callable[[Tensor], Tensor]) -> Self:
        """The batch of another input, its other tensors moved."""
