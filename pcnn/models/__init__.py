"""Networks, assembled from shared blocks with convolution and norm injected."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

# imported when they are asked for: a training needs one of them
_HOMES = {
    name: home
    for home, names in {
        "minkunet": ("MinkUNet", "MinkUNet42", "SpUNet"),
        "resnet": ("ResNet", "ResNet18"),
        "resunet": ("ResUNet", "ResUNetBN2C"),
        "sparse_resnet": (
            "SparseResNet",
            "SparseResNet21",
            "SparseResNetClassification",
            "SparseResNetLarge",
            "SparseResNetSegmentation",
            "VoxelBackbone",
            "VoxelResBackbone",
            "sparse_resnet_for",
        ),
        "spvcnn": ("SPVCNN",),
    }.items()
    for name in names
}
#: Of the room that reads checkpoints, which stands above this one.
_TRAINED = {"available": ("catalogue", "catalogue"), "load": ("networks", "load")}


def __getattr__(name: str) -> Any:
    if name in _TRAINED:
        home, own = _TRAINED[name]
        return getattr(import_module(f"pcnn.experiment.{home}"), own)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
