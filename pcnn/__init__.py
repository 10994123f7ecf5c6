"""Point-cloud networks in which every convolution is one sum over a set of triplets.

``voxelize`` and ``native_points`` make a ``SparseTensor`` of points: features on a ``VoxelGrid`` or
a ``PointSet``. ``nn`` has layers, ``models`` networks, ``runtime`` makes networks ready to run.
``plan`` and ``Planner`` build levels and kernel maps ahead, ``tune`` finds the quickest settings of
every layer. ``register`` finds the rigid transform of one cloud onto another,
``predict`` the class of every point.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn import models, nn, runtime
    from pcnn.experiment.predict import predict
    from pcnn.experiment.register import register
    from pcnn.geometry import Kernel, KernelMap, PointSet, VoxelGrid
    from pcnn.ops import (
        Engine,
        Planner,
        devoxelize,
        from_coordinates,
        lookup,
        native_points,
        plan,
        voxelize,
    )
    from pcnn.runtime.tuning import tune
    from pcnn.tensor import SparseTensor

__version__ = "0.1.0"

__all__ = [
    "Engine",
    "Kernel",
    "KernelMap",
    "Planner",
    "PointSet",
    "SparseTensor",
    "VoxelGrid",
    "__version__",
    "devoxelize",
    "from_coordinates",
    "lookup",
    "models",
    "native_points",
    "nn",
    "plan",
    "predict",
    "register",
    "runtime",
    "tune",
    "voxelize",
]

_of_home = late(
    __name__,
    {
        ".experiment.predict": ("predict",),
        ".experiment.register": ("register",),
        ".geometry": ("Kernel", "KernelMap", "PointSet", "VoxelGrid"),
        ".ops": (
            *("Engine", "Planner", "devoxelize", "from_coordinates", "lookup"),
            *("native_points", "plan", "voxelize"),
        ),
        ".runtime.tuning": ("tune",),
        ".tensor": ("SparseTensor",),
    },
)
#: Packages that ``import pcnn`` alone makes reachable.
_ROOMS = (
    *("callbacks", "compat", "datamodules", "datasets", "geometry", "interop", "losses", "metrics"),
    *("models", "nn", "ops", "registration", "runtime", "simulate", "tasks", "visualize"),
)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `pcnn --help` needs no torch."""
    if name in _ROOMS:
        return import_module(f"pcnn.{name}")
    return _of_home(name)


def __dir__() -> list[str]:
    """Public names, imported or not: for completion in a shell and for `help`."""
    return sorted({*__all__, *_ROOMS})
