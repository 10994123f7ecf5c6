"""What it takes to put the points of a batch on a geometry anew: moved, or only some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.datasets.fragments import fragments
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

if TYPE_CHECKING:  # a placement makes samples, which hold these
    from pcnn.datasets.placement import Placement, VoxelSize


@dataclass(frozen=True, eq=False)
class RawPoints:
    """The points' own features, and what put the points on their geometry.

    Args:
        features: [P, F] float32, besides x, y, z.
        voxel_size: edge of a cell of the finest level [m].
        placement: as in `pcnn.datasets.CloudDataset`.
    """

    features: Tensor
    voxel_size: VoxelSize
    placement: Placement

    @classmethod
    def of_all(cls, parts: Sequence[RawPoints | None]) -> RawPoints | None:
        """Return those of clouds on one kind of geometry in their order; None if one has none."""
        there = [part for part in parts if part is not None]
        if not there or len(there) < len(parts):
            return None
        return replace(there[0], features=torch.cat([part.features for part in there]))

    def with_features(self, features: Tensor) -> RawPoints:
        """Return the same with features that lie elsewhere."""
        return replace(self, features=features)

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
        """Yield rows of points of which no two share a row of the input, until all had their turn.

        See `pcnn.datasets.fragments.fragments`; where every point is a row, one fragment of all.
        """
        cell = self.placement.row_cell(self.voxel_size)
        if cell is not None:
            yield from fragments(points, scans, cell, batch_size)
        elif len(points):
            yield torch.arange(len(points), device=points.device)
