"""Networks, assembled from shared blocks with convolution and norm injected."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcnn.models.minkunet import SPVCNN, MinkUNet, MinkUNet42
from pcnn.models.resunet import ResUNetBN2C
from pcnn.models.sparse_resnet import (
    ResNet18,
    SparseResNet,
    SparseResNet21,
    SparseResNetLarge,
    SparseResNetSegmentation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    available: Callable[[], Mapping[str, Any]]  # trained networks by name
    load: Callable[..., nn.Module]

__all__ = [
    "SPVCNN",
    "MinkUNet",
    "MinkUNet42",
    "ResNet18",
    "ResUNetBN2C",
    "SparseResNet",
    "SparseResNet21",
    "SparseResNetLarge",
    "SparseResNetSegmentation",
    "available",
    "load",
]


def __getattr__(name: str) -> Any:
    if name == "available":
        return import_module("pcnn.experiment.weights").catalogue
    if name == "load":
        return import_module("pcnn.experiment.networks").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
