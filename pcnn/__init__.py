"""Point-cloud networks in which every convolution is one sum over a set of triplets."""

from importlib import import_module
from typing import Any

from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.ops import Engine, Planner, plan, voxelize
from pcnn.tensor import SparseTensor

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Kernel",
    "KernelMap",
    "Planner",
    "SparseTensor",
    "VoxelGrid",
    "__version__",
    "models",
    "nn",
    "plan",
    "voxelize",
]


def __getattr__(name: str) -> Any:
    """Import the packages `pcnn.nn` and `pcnn.models` when they are first asked for."""
    if name in ("models", "nn"):
        return import_module(f"pcnn.{name}")
    raise AttributeError(f"module 'pcnn' has no attribute {name!r}")
