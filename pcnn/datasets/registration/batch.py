"""From placed pairs to a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pcnn.datasets.joined_geometry import joined
from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.placed_pairs import PlacedCloud, PlacedPair, placed
from pcnn.metrics.registration.pair_results import PairId
from pcnn.tensor import SparseTensor


class PairBatch:
    """Pairs of a step. Not a dataclass: Lightning would take a dataclass apart.

    The two sides go through the network one after the other, or in one pass as 2 B clouds.

    Args:
        inputs: of the network, one channel, on voxels or native points: source and target of B
            clouds each, or one tensor of 2 B clouds, first all sources.
        source_places: [N, 3] float32, where each row lies in its cloud's frame, after augmentation
            [m]: a native point, or the mean of a voxel's points.
        target_places: [M, 3] float32.
        source_offsets: [B + 1] int64: cloud b has the rows ``offsets[b]..offsets[b + 1]``.
        target_offsets: [B + 1] int64.
        transforms: [B, 4, 4] float64, source to target, after augmentation.
        positives: [T, 2] int64, rows of source and target that are the same place, sorted by pair
            and source row; None until they are found (`with_positives`).
        positive_offsets: [B + 1] int64: pair b has the positives ``offsets[b]..offsets[b + 1]``.
        names: of the B pairs.
        voxel_size: edge of a voxel, on native points of a cell [m].

    A batch without pairs (B = 0, each side one empty cloud) occurs in evaluation on several ranks;
    see `pcnn.datasets.sampler.EvaluationSampler`.
    """

    def __init__(
        self,
        inputs: tuple[SparseTensor, ...],
        source_places: Tensor,
        target_places: Tensor,
        source_offsets: Tensor,
        target_offsets: Tensor,
        transforms: Tensor,
        positives: Tensor | None = None,
        positive_offsets: Tensor | None = None,
        names: tuple[PairId, ...] = (),
        voxel_size: float = 1.0,
    ) -> None:
        self.inputs = inputs
        self.source_places = source_places
        self.target_places = target_places
        self.source_offsets = source_offsets
        self.target_offsets = target_offsets
        self.transforms = transforms
        self.positives = positives
        self.positive_offsets = positive_offsets
        self.names = names
        self.voxel_size = voxel_size

    @property
    def batch_size(self) -> int:
        """Number of pairs B."""
        return len(self.names)

    def with_positives(self, positives: Tensor, positive_offsets: Tensor) -> PairBatch:
        """Return the batch with its positives; arguments as in the class."""
        return PairBatch(
            self.inputs,
            self.source_places,
            self.target_places,
            self.source_offsets,
            self.target_offsets,
            self.transforms,
            positives,
            positive_offsets,
            self.names,
            self.voxel_size,
        )

    def to(
        self,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool = False,
    ) -> PairBatch:
        """Return the batch on another device; ``dtype`` converts the network's inputs alone."""
        goal = device if device is not None else self.source_places.device

        def side(tensor: SparseTensor) -> SparseTensor:
            if dtype is not None and tensor.features.dtype != dtype:
                tensor = tensor.replace(tensor.features.to(dtype))
            return tensor.to(goal, non_blocking=non_blocking)

        return self._mapped(side, lambda t: t.to(goal, non_blocking=non_blocking))

    def pin_memory(self) -> PairBatch:
        """Return the batch in page-locked memory."""
        return self._mapped(SparseTensor.pin_memory, Tensor.pin_memory)

    def tensors(self) -> list[Tensor]:
        """Every tensor beside the network's inputs."""
        own = (
            self.source_places,
            self.target_places,
            self.source_offsets,
            self.target_offsets,
            self.transforms,
            self.positives,
            self.positive_offsets,
        )
        return [tensor for tensor in own if tensor is not None]

    def _mapped(
        self, side: Callable[[SparseTensor], SparseTensor], move: Callable[[Tensor], Tensor]
    ) -> PairBatch:
        return PairBatch(
            tuple(map(side, self.inputs)),
            move(self.source_places),
            move(self.target_places),
            move(self.source_offsets),
            move(self.target_offsets),
            move(self.transforms),
            None if self.positives is None else move(self.positives),
            None if self.positive_offsets is None else move(self.positive_offsets),
            self.names,
            self.voxel_size,
        )


class CollatePairs:
    """Joins pairs into a batch. A class, so that workers can receive it.

    Args:
        placement: of the clouds, which an empty list cannot tell.
        voxel_size: edge of a voxel, on native points of a cell [m].
        one_pass: both sides are one tensor.
    """

    def __init__(self, placement: Placement, voxel_size: float, one_pass: bool = False) -> None:
        self.placement = placement
        self.voxel_size = voxel_size
        self.one_pass = one_pass

    def __call__(self, pairs: Sequence[PlacedPair]) -> PairBatch:
        """Return the batch of the pairs, in their order; no pairs give a batch of none.

        Raises:
            ValueError: pairs on unlike geometries.
        """
        nothing = (
            [] if pairs else [placed(torch.empty(0, 3), self.voxel_size, self.placement, "nothing")]
        )
        source = [pair.source for pair in pairs]
        target = [pair.target for pair in pairs]
        sides = source or nothing, target or nothing
        entering = [[*sides[0], *sides[1]]] if self.one_pass else sides
        transforms = [
            torch.empty(0, 4, 4, dtype=torch.float64),
            *(p.transform[None] for p in pairs),
        ]
        return PairBatch(
            tuple(map(_side, entering)),
            _places(sides[0]),
            _places(sides[1]),
            _offsets(source),
            _offsets(target),
            torch.cat(transforms),
            names=tuple(pair.name for pair in pairs),
            voxel_size=self.voxel_size,
        )


def _side(clouds: Sequence[PlacedCloud]) -> SparseTensor:
    geometry = joined([cloud.geometry for cloud in clouds])
    return SparseTensor(torch.cat([cloud.features for cloud in clouds]), geometry)


def _places(clouds: Sequence[PlacedCloud]) -> Tensor:
    return torch.cat([cloud.places for cloud in clouds])


def _offsets(clouds: Sequence[PlacedCloud]) -> Tensor:
    return torch.tensor([0, *(len(cloud.places) for cloud in clouds)]).cumsum(0)
