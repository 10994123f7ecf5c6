"""Descriptors of a trained network, at the points of its voxels or at native points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.placed_pairs import placed
from pcnn.registration.descriptor import Described, unit_length
from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class NetworkDescriptor:
    """A network that gives every site a descriptor; its input is a one at every site (FCGF)."""

    net: nn.Module  # one input channel, [N, C] features out, in evaluation mode
    voxel_size: float  # edge of a voxel, on native points of a cell [m]
    name: str  # as it is named beside figures, e.g. the checkpoint
    placement: Placement  # puts clouds on voxels or on native points
    device: torch.device | str = "cpu"  # where it computes
    benchmark: str = ""  # of the pairs that it was trained on

    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] [m]."""
        return self.many([points])[0]

    @torch.inference_mode()
    def many(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Describe several clouds in one batch."""
        if not all(map(len, clouds)):
            raise ValueError("a cloud without points has no descriptors")
        parts = [
            placed(points.to(self.device), self.voxel_size, self.placement, "cloud")
            for points in clouds
        ]
        geometries: Any = [part.geometry for part in parts]
        geometry = type(geometries[0]).collate(geometries)
        features = torch.cat([part.features for part in parts])
        x = SparseTensor(features[:, 3:].contiguous(), geometry)
        sizes = [len(part.features) for part in parts]
        described = unit_length(self._finite(self.net(x))).split(sizes)
        places = features[:, :3].float().split(sizes)
        return [Described(*each) for each in zip(places, described, strict=True)]

    def _finite(self, found: SparseTensor) -> Tensor:
        features = found.features.float()
        if not bool(torch.isfinite(features).all()):
            raise ValueError(
                f"{self.name} gives NaN or infinite descriptors; train it at a smaller rate"
            )
        return features
