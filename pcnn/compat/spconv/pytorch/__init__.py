"""The names of ``spconv.pytorch``."""

from typing import Any

from torch.nn import Identity

from pcnn.compat.spconv.pytorch import conv, core, modules
from pcnn.compat.spconv.pytorch.conv import LAYERS, SparseConvolution
from pcnn.compat.spconv.pytorch.core import ConvAlgo, SparseConvTensor, SparseModule
from pcnn.compat.spconv.pytorch.modules import SparseSequential, ToDense

__all__ = [
    "ConvAlgo",
    "Identity",
    "SparseConvTensor",
    "SparseConvolution",
    "SparseModule",
    "SparseSequential",
    "ToDense",
    "conv",
    "core",
    "modules",
]


def __getattr__(name: str) -> Any:
    if name in LAYERS:
        return LAYERS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
