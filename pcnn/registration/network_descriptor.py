"""Descriptors of a trained network, at the points of its voxels or at native points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pcnn.datasets.placement import Placement
from pcnn.datasets.registration.placed_pairs import placed
from pcnn.registration.descriptor import Described, HeadInput, unit_length
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

    @torch.inference_mode()
    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] [m]."""
        if len(points) == 0:
            raise ValueError("a cloud without points has no descriptors")
        points = points.to(self.device)
        sample = placed(points, self.voxel_size, self.placement, "cloud")
        places = sample.features[:, :3].float()
        x = SparseTensor(sample.features[:, 3:].contiguous(), sample.geometry)
        head = getattr(self.net, "overlap_head", None)
        if head is None:
            return Described(places.cpu(), unit_length(self._finite(self.net(x))).cpu())
        found, for_head = self.net(x, for_head=True)
        features = unit_length(self._finite(found)).cpu()
        scored = HeadInput(head, for_head.float().cpu(), self.voxel_size)
        return Described(places.cpu(), features, scored=scored)

    def _finite(self, found: SparseTensor) -> Tensor:
        features = found.features.float()
        if not bool(torch.isfinite(features).all()):
            raise ValueError(
                f"{self.name} gives NaN or infinite descriptors; train it at a smaller rate"
            )
        return features
