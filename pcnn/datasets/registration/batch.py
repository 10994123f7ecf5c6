"""From placed pairs to a batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.datasets.batches import Batch, joined_geometry
from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.placed_pairs import PlacedCloud, PlacedPair, placed
from pcnn.metrics.registration.pair_results import PairId
from pcnn.tensor import SparseTensor


class PairBatch(Batch):
    """Pairs of a step.

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

    def with_positives(self, positives: Tensor, positive_offsets: Tensor) -> PairBatch:
        """Return the batch with its positives; arguments as in the class."""
        other = copy.copy(self)
        other.positives, other.positive_offsets = positives, positive_offsets
        return other


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
    geometry = joined_geometry([cloud.geometry for cloud in clouds])
    return SparseTensor(torch.cat([cloud.features for cloud in clouds]), geometry)


def _places(clouds: Sequence[PlacedCloud]) -> Tensor:
    return torch.cat([cloud.places for cloud in clouds])


def _offsets(clouds: Sequence[PlacedCloud]) -> Tensor:
    return torch.tensor([0, *(len(cloud.places) for cloud in clouds)]).cumsum(0)
