"""Layers on sparse tensors, look-alikes of `torch.nn`."""

from pcnn.nn.conv import Conv3d, ConvTranspose3d, SparseConv3d
from pcnn.nn.features import FeatureWise, add, concatenate
from pcnn.nn.folded_norm import FoldedNorm
from pcnn.nn.fused import fused_convolution, is_hooked
from pcnn.nn.instance_norm import InstanceNorm
from pcnn.nn.joined import JoinedTensor
from pcnn.nn.norm import normalize
from pcnn.nn.planned import PlannedModule
from pcnn.nn.pooling import (
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    MaxPool3d,
    SumPool3d,
    broadcast,
    unpool,
)
from pcnn.nn.sequential import Sequential
from pcnn.nn.sites import dilate, on_union, prune, union

__all__ = [
    "AvgPool3d",
    "Conv3d",
    "ConvTranspose3d",
    "FeatureWise",
    "FoldedNorm",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "InstanceNorm",
    "JoinedTensor",
    "MaxPool3d",
    "PlannedModule",
    "Sequential",
    "SparseConv3d",
    "SumPool3d",
    "add",
    "broadcast",
    "concatenate",
    "dilate",
    "fused_convolution",
    "is_hooked",
    "normalize",
    "on_union",
    "prune",
    "union",
    "unpool",
]
