"""MinkUNet of another package's convolutions: `model._target_` of a `pcnn train` beside ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.peers import installed
from benchmarks.peers.base import BoxedSites, PeerLayer, PeerTensor, rebuilt
from pcnn.models import MinkUNet42
from pcnn.tensor import SparseTensor

LOW, SHAPE = (2048, 2048, 1024), [4096, 4096, 2048]  # voxels of a scan and the box around them


class PeerMinkUNet(nn.Module):
    """Arguments are those of `MinkUNet42`; a seed gives the weights that it gives ours."""

    low: torch.Tensor

    def __init__(self, in_channels: int, out_channels: int, package: str, **given: Any) -> None:
        super().__init__()
        ours = MinkUNet42(in_channels, out_channels, **given)
        with torch.random.fork_rng():  # weights of its own are drawn, and not used
            here = ours.cuda() if torch.cuda.is_available() else ours  # decides how layers compute
            self.net = rebuilt(here, installed(package)).cpu()
        for layer in self.net.modules():
            if isinstance(layer, PeerLayer):  # training and evaluation convolve in one way
                layer.theirs.train = lambda mode=True, own=layer.theirs: own  # type: ignore
        self.register_buffer("low", torch.tensor([0, *LOW], dtype=torch.int32), persistent=False)

    def forward(self, x: SparseTensor) -> PeerTensor:
        grid: Any = x.geometry
        sites = BoxedSites(grid.coords + self.low, SHAPE, grid.batch_size)
        return self.net(PeerTensor(x.features, sites))  # type: ignore[no-any-return]
