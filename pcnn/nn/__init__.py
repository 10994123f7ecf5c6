"""Layers on sparse tensors, look-alikes of `torch.nn`."""

from pcnn.nn.conv import (
    AvgPool3d,
    Conv3d,
    ConvTranspose3d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool3d,
    SparseConv3d,
)
from pcnn.nn.features import add, cat, normalize
from pcnn.nn.fused import FeatureWise, Sequential
from pcnn.nn.planned import PlannedModule

__all__ = [
    "AvgPool3d",
    "Conv3d",
    "ConvTranspose3d",
    "FeatureWise",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool3d",
    "PlannedModule",
    "Sequential",
    "SparseConv3d",
    "add",
    "cat",
    "normalize",
]
