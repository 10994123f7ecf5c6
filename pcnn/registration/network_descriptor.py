"""Descriptors of a trained network, at the points of its voxels or at native points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pcnn.datasets.placement import Placement
from pcnn.registration.descriptor import Described, unit_length
from pcnn.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class NetworkDescriptor:
    """A network that gives every site a descriptor; its input is a one at every site (FCGF).

    In other cells than its own it sees clouds that are divided by the ratio of both.
    """

    net: nn.Module  # one input channel, [N, C] features out, in evaluation mode
    own_size: float  # edge of the voxel it was trained in, on native points of a cell [m]
    own_name: str  # as it is named beside figures, e.g. the checkpoint
    placement: Placement  # puts clouds on voxels or on native points
    device: torch.device | str = "cpu"  # where it computes
    benchmark: str = ""  # of the pairs that it was trained on
    factor: float = 1.0  # of the cells that clouds are described in over its own

    @property
    def voxel_size(self) -> float:
        """Edge of a cell [m]."""
        return self.own_size * self.factor

    @property
    def name(self) -> str:
        """What it is, and the cell where that is not its own."""
        told = f", cells of {self.voxel_size:.3g} m" if self.factor != 1 else ""
        return f"{self.own_name}{told}"

    @torch.inference_mode()
    def __call__(self, clouds: Sequence[Tensor]) -> list[Described]:
        """Describe clouds [P, 3] [m] in one batch."""
        if not all(map(len, clouds)):
            raise ValueError("a cloud without points has no descriptors")
        points = torch.cat([cloud.to(self.device, non_blocking=True) for cloud in clouds])
        if self.factor != 1:
            points = points / self.factor
        inputs = torch.nn.functional.pad(points, (0, 1), value=1.0)
        batch = None
        if len(clouds) > 1:
            sizes = torch.tensor(list(map(len, clouds)))
            batch = torch.arange(len(clouds)).repeat_interleave(sizes)
            batch = batch.to(self.device, non_blocking=True)
        both = self.placement.place(points, inputs, batch, len(clouds), self.own_size)
        x = SparseTensor(both.features[:, 3:].contiguous(), both.geometry)
        features = self.net(x).features.float()
        if not all(map(math.isfinite, torch.stack(features.aminmax()).tolist())):
            raise ValueError(
                f"{self.own_name} gives NaN or infinite descriptors; train it at a smaller rate"
            )
        places = both.features[:, :3].float() * self.factor
        rows = [len(places)] if batch is None else both.geometry.batch_offsets.diff().tolist()
        return [
            Described(*each)
            for each in zip(places.split(rows), unit_length(features).split(rows), strict=True)
        ]
