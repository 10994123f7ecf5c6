"""FlexGEMM: functions on features and coordinates in a box; it has no transposed convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.peers.base import BoxedSites, Convolution, Peer, PeerLayer, PeerTensor, strided
from pcnn.interop import ChannelsAround
from pcnn.nn import ConvTranspose3d
from pcnn.nn.conv import compute_dtype
from pcnn.tensor import SparseTensor


class Layer(PeerLayer):
    def __init__(self, package: Any, ours: Convolution) -> None:
        super().__init__(nn.Module(), ours, ChannelsAround("flex_gemm", "MIT"))
        self.package = package

    def forward(self, x: SparseTensor, out: SparseTensor | None = None) -> PeerTensor:
        here: Any = x.geometry
        kernel, dtype = self.kernel, compute_dtype(x.features)
        features, weight = x.features.to(dtype).contiguous(), self.weight.to(dtype)
        bias = None
        if torch.is_grad_enabled():  # its backward asks a bias whether it wants a gradient
            bias = features.new_zeros(weight.shape[0])
        box = torch.Size((here.batches, features.shape[1], *here.shape))
        place = here.stride, kernel.key
        given = features, here.indices, box, weight, bias
        if kernel.is_pointwise:
            return PeerTensor(features @ weight.flatten(1).t(), here)
        if not kernel.is_strided:
            found, here.maps[place] = self.package.sparse_submanifold_conv3d(
                *given, here.maps.get(place), kernel.dilation
            )
            return PeerTensor(found, here)
        target, cache = here.maps.get(place, (None, None))
        sites = None if target is None else target.indices
        rest = kernel.stride, kernel.padding, kernel.dilation
        found, sites, cache = self.package.sparse_conv3d(*given, cache, sites, *rest)
        if target is None:
            axes = zip(here.shape, kernel.stride, strict=True)
            shape, stride = [n // s for n, s in axes], strided(here.stride, kernel)
            target = BoxedSites(sites, shape, here.batches, stride, here.maps)
        here.maps[place] = target, cache
        return PeerTensor(found, target)


class FlexGemm(Peer):
    reaches = True

    def made(self, ours: Convolution) -> PeerLayer:
        if isinstance(ours, ConvTranspose3d):
            raise ValueError(f"{self.name} has no transposed convolution")
        if not (ours.kernel.is_strided or ours.kernel.is_symmetric) or ours.kernel.volume > 32:
            raise ValueError(f"{self.name} has no such kernel: {ours.kernel.size} at stride 1")
        return Layer(self.package, ours)


peer = FlexGemm
