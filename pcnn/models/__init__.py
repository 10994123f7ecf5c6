"""Networks, assembled from shared blocks with convolution and norm injected."""

from pcnn.models.litept import LitePT, LitePTS
from pcnn.models.minkunet import MinkUNet, MinkUNet42, SpUNet
from pcnn.models.resnet import ResNet, ResNet18
from pcnn.models.resunet import ResUNet, ResUNetBN2C
from pcnn.models.sparse_resnet import (
    SparseResNet,
    SparseResNet21,
    SparseResNetClassification,
    SparseResNetLarge,
    SparseResNetSegmentation,
    VoxelBackbone,
    VoxelResBackbone,
    sparse_resnet_for,
)
from pcnn.models.spvcnn import SPVCNN
from pcnn.models.trained import available, load

__all__ = [
    "SPVCNN",
    "LitePT",
    "LitePTS",
    "MinkUNet",
    "MinkUNet42",
    "ResNet",
    "ResNet18",
    "ResUNet",
    "ResUNetBN2C",
    "SpUNet",
    "SparseResNet",
    "SparseResNet21",
    "SparseResNetClassification",
    "SparseResNetLarge",
    "SparseResNetSegmentation",
    "VoxelBackbone",
    "VoxelResBackbone",
    "available",
    "load",
    "sparse_resnet_for",
]
