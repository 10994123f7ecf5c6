"""Sites of packages whose coordinates lie in a box and count in units of their own voxels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pcnn.bench.installed.peer import PeerTensor
from pcnn.geometry.kernel_slots import Triple

#: Cells of the box are a multiple of this, as far as networks halve the resolution, and a layer
#: of that many cells is left free: a site that a kernel reaches beyond the box would be dropped.
STEP = 16


@dataclass(eq=False)
class Sites:
    """Sites of a tensor.

    Args:
        indices: ``[N, 4]`` int32 (batch, x, y, z) in units of their own voxels.
        shape: of the box.
        batches: number of clouds.
        stride: tensor stride.
        maps: by key, of all levels of one input.
    """

    indices: Tensor
    shape: list[int]
    batches: int
    stride: Triple = (1, 1, 1)
    maps: dict[Any, Any] = field(default_factory=dict)
    count: None = None

    @property
    def rows(self) -> int:
        """See `pcnn.bench.installed.peer.PeerSites`."""
        return self.indices.shape[0]

    def coords(self) -> Tensor:
        """See `pcnn.bench.installed.peer.PeerSites`; moved by a multiple of `STEP`."""
        return self.indices * self.indices.new_tensor((1, *self.stride))


def boxed(cells: Tensor) -> tuple[Tensor, list[int]]:
    """Cells ``[P, 4]`` moved by a multiple of `STEP` so that none is negative, and their box."""
    low = torch.div(cells[:, 1:].amin(0), STEP, rounding_mode="floor") * STEP
    indices = torch.cat([cells[:, :1], cells[:, 1:] - low], 1).int().contiguous()
    high = indices[:, 1:].amax(0).tolist()
    return indices, [(int(last) // STEP + 2) * STEP for last in high]


class InBox:
    """A package whose tensor is made of boxed cells, and has no maps at first."""

    def prepared(self, cells: Tensor, batches: int) -> tuple[Tensor, list[int], int]:
        """See `pcnn.bench.installed.peer.Peer.prepared`."""
        return (*boxed(cells), batches)

    def tensor(self, prepared: tuple[Tensor, list[int], int], features: Tensor) -> PeerTensor:
        """See `pcnn.bench.installed.peer.Peer.tensor`."""
        return PeerTensor(features, Sites(*prepared))
