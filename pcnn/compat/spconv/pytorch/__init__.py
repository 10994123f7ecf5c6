"""The names of ``spconv.pytorch``."""

from types import ModuleType
from typing import Any

from torch.nn import Identity

from pcnn.compat.spconv.core import ConvAlgo
from pcnn.compat.spconv.pytorch import conv, core, functional, modules, ops, pool


def _of_axes(*kinds: str) -> list[str]:
    return [f"{kind}{axes}d" for kind in kinds for axes in (1, 2, 3)]


_HOMES: dict[ModuleType, list[str]] = {
    core: ["SparseConvTensor", "SparseModule"],
    conv: [
        "SparseConvolution",
        *_of_axes("SparseConv", "SubMConv", "SparseConvTranspose", "SparseInverseConv"),
    ],
    pool: [
        "SparseGlobalAvgPool",
        "SparseGlobalMaxPool",
        *_of_axes("SparseMaxPool", "SparseAvgPool"),
    ],
    modules: [
        *("AddTable", "ConcatTable", "JoinTable", "SparseBatchNorm", "SparseReLU"),
        *("SparseSequential", "ToDense"),
    ],
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}
__all__ = ["ConvAlgo", "Identity", "conv", "core", "functional", "modules", "ops", "pool"]
__all__ += [*_NAMES]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(_NAMES[name], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
