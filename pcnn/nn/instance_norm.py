"""Normalisation of every cloud by itself."""

from __future__ import annotations

import torch
from torch import nn

from pcnn.geometry.base import holding_sites
from pcnn.nn.pooling import cloud_map
from pcnn.ops.reduce import reduce_mean, reduce_sum
from pcnn.tensor import SparseTensor, require_sparse


class InstanceNorm(nn.Module):
    """Normalise every channel over the sites of each cloud, as `torch.nn.InstanceNorm1d`.

    ``(x - mean) / sqrt(variance + eps) * weight + bias``, the variance divided by the number of
    sites. Training and evaluation compute the same: there are no running statistics. A cloud of one
    site becomes 0 before weight and bias, one of none has no rows. Statistics are float32 (float64
    for float64); nothing waits for the device.

    Args:
        num_features: channels C.
        eps: added to the variance.
        affine: whether there are a weight and a bias ``[C]``.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__()
        self.num_features, self.eps, self.affine = num_features, eps, affine
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None

    def extra_repr(self) -> str:
        """Settings, for `repr`."""
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"

    def forward(self, x: SparseTensor) -> SparseTensor:
        """Normalise ``[N, C]`` on voxels or native points.

        Raises:
            TypeError: no sparse tensor.
            ValueError: another number of channels.
        """
        require_sparse(x, self)
        if x.channels != self.num_features:
            raise ValueError(f"InstanceNorm takes {self.num_features} channels, got {x.channels}")
        clouds = cloud_map(x.geometry)
        sites = clouds.transpose()
        wide = x.features if x.features.dtype == torch.float64 else x.features.float()
        centred = wide - reduce_sum(reduce_mean(wide, clouds), sites)
        variance = reduce_mean(centred.square(), clouds)  # [B, C]
        scaled = centred * reduce_sum(torch.rsqrt(variance + self.eps), sites)
        if self.weight is not None and self.bias is not None:
            scaled = scaled * self.weight + self.bias
            count = x.geometry.count
            if count is not None:
                scaled = torch.where(holding_sites(len(scaled), count)[:, None], scaled, 0)
        return x.replace(scaled.to(x.features.dtype))
