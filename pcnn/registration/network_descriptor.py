"""Descriptors of a trained network, at the points of its voxels or at native points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pcnn.datasets.placement import OnPoints, Placement
from pcnn.datasets.registration.placed_pairs import placed
from pcnn.registration.descriptor import Described, HeadInput, unit_length
from pcnn.registration.dominant_frame import dominant_frame
from pcnn.registration.rotation_group import rotation_group
from pcnn.registration.turned_copies import pooled
from pcnn.tensor import SparseTensor

#: Rows of turned copies that go through the network at once.
ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class NetworkDescriptor:
    """A network that gives every site a descriptor; its input is a one at every site (FCGF).

    Args:
        net: one input channel, ``[N, C]`` features out, in evaluation mode.
        voxel_size: edge of a voxel, on native points of a cell [m].
        name: as it is named beside figures, e.g. the checkpoint.
        placement: puts clouds on voxels or on native points.
        device: where it computes.
        copies: that the network describes of a cloud, each turned by a rotation of a group: 1, 24
            or 60. With 24 or 60 descriptors hold under any rotation, for as many times the work.
        benchmark: of the pairs that it was trained on, by which `pcnn.registration.cell_size` knows
            which clouds fit; empty where nothing tells it.

    Raises:
        ValueError: another number of copies.
    """

    net: nn.Module
    voxel_size: float
    name: str
    placement: Placement
    device: torch.device | str = "cpu"
    copies: int = 1
    benchmark: str = ""

    def __post_init__(self) -> None:
        rotation_group(self.copies)  # refuses what is none

    @torch.inference_mode()
    def __call__(self, points: Tensor) -> Described:
        """Describe points [P, 3] [m].

        Returns:
            On voxels the mean point of each, on native points every point that was kept;
            descriptors of unit length. With copies these are pooled over them, and ``turned`` holds
            what each copy has. Without copies a head of the network is passed on, with what it
            reads.

        Raises:
            ValueError: no points, coordinates that are not finite or too far apart, or a network
                that gives NaN or infinite numbers.
        """
        if len(points) == 0:
            raise ValueError("a cloud without points has no descriptors")
        points = points.to(self.device)
        cloud = placed(points, self.voxel_size, self.placement, "cloud")
        places = cloud.places.float()
        if self.copies > 1:
            turned = self._turned(places)
            return Described(places.cpu(), pooled(turned).cpu(), turned.cpu())
        x = SparseTensor(cloud.features, cloud.geometry)
        head = getattr(self.net, "overlap_head", None)
        if head is None:
            return Described(places.cpu(), unit_length(self._finite(self.net(x))).cpu())
        found, for_head = self.net(x, for_head=True)
        features = unit_length(self._finite(found)).cpu()
        scored = HeadInput(head, for_head.float().cpu(), self.voxel_size)
        return Described(places.cpu(), features, scored=scored)

    def _turned(self, places: Tensor) -> Tensor:
        """Descriptors [N, G, C] float16 of places [N, 3] in turned copies of their cloud."""
        every = self.placement  # native points are thinned: every one of them stays
        if isinstance(every, OnPoints):
            every = replace(every, thin=None)
        rotations = rotation_group(self.copies).rotations.to(places.device)
        centred = places.double() - places.double().mean(0)
        # clouds of one place in nearly one frame: then the group holds the rotation between them
        framed = centred @ dominant_frame(places, self.voxel_size).to(places.device).T
        copies = (framed @ rotations.transpose(1, 2)).float()  # [G, N, 3]
        at_once = max(1, ROWS // len(places))
        found = []
        for some in copies.split(at_once):
            number = len(some)
            flat = some.flatten(0, 1)
            batch = torch.arange(number, device=flat.device).repeat_interleave(len(places))
            x = every.place(flat, torch.ones_like(flat[:, :1]), batch, number, self.voxel_size)
            features = self._finite(self.net(x))[x.geometry.point_rows()]
            found.append(unit_length(features).half().view(number, len(places), -1))
        return torch.cat(found).transpose(0, 1).contiguous()

    def _finite(self, found: SparseTensor) -> Tensor:
        features = found.features.float()
        if not bool(torch.isfinite(features).all()):
            raise ValueError(
                f"{self.name} gives NaN or infinite descriptors; train it at a smaller rate"
            )
        return features
