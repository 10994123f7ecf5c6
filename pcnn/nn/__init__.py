"""Layers on sparse tensors, look-alikes of `torch.nn`."""

from pcnn.nn.conv import Conv3d, ConvTranspose3d, SparseConv3d
from pcnn.nn.features import FeatureWise, add, cat
from pcnn.nn.instance_norm import InstanceNorm
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
from pcnn.nn.sites import align, dilate, prune, union

__all__ = [
    "AvgPool3d",
    "Conv3d",
    "ConvTranspose3d",
    "FeatureWise",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "InstanceNorm",
    "MaxPool3d",
    "PlannedModule",
    "Sequential",
    "SparseConv3d",
    "SumPool3d",
    "add",
    "align",
    "broadcast",
    "cat",
    "dilate",
    "normalize",
    "prune",
    "union",
    "unpool",
]
