"""Layers on sparse tensors, look-alikes of `torch.nn`."""

from pcnn.nn.conv import Conv3d, ConvTranspose3d
from pcnn.nn.features import FeatureWise, Sequential, add, concatenate
from pcnn.nn.norm import normalize
from pcnn.nn.planned import PlannedModule
from pcnn.nn.pooling import (
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    GlobalSumPool,
    MaxPool3d,
    SumPool3d,
    unpool,
)

__all__ = [
    "AvgPool3d",
    "Conv3d",
    "ConvTranspose3d",
    "FeatureWise",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GlobalSumPool",
    "MaxPool3d",
    "PlannedModule",
    "Sequential",
    "SumPool3d",
    "add",
    "concatenate",
    "normalize",
    "unpool",
]
