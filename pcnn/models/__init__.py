"""Networks, assembled from shared blocks with convolution and norm injected."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcnn.late import late

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

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

    available: Callable[[], Mapping[str, Any]]  # trained networks by name
    load: Callable[..., nn.Module]

__all__ = [
    "SPVCNN",
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

# a training needs one of them
_of_home = late(
    __name__,
    {
        ".minkunet": ("MinkUNet", "MinkUNet42", "SpUNet"),
        ".resnet": ("ResNet", "ResNet18"),
        ".resunet": ("ResUNet", "ResUNetBN2C"),
        ".sparse_resnet": (
            "SparseResNet",
            "SparseResNet21",
            "SparseResNetClassification",
            "SparseResNetLarge",
            "SparseResNetSegmentation",
            "VoxelBackbone",
            "VoxelResBackbone",
            "sparse_resnet_for",
        ),
        ".spvcnn": ("SPVCNN",),
        "pcnn.experiment.networks": ("load",),
    },
)


def __getattr__(name: str) -> Any:
    if name == "available":
        return import_module("pcnn.experiment.catalogue").catalogue
    return _of_home(name)
