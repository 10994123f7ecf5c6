"""The suites of `pcnn bench`, and the figures of each."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pcnn.bench.latency.setting import LatencySetting
from pcnn.bench.setting import (
    LayersSetting,
    MappingSetting,
    NativeSetting,
    NetworksSetting,
    Setting,
)

if TYPE_CHECKING:
    from pcnn.bench.suite import Figure

#: Suites by name: their setting, what they do, and the figures measured unless others are named
#: (none: all).
SUITES: dict[str, tuple[type[Setting], str, tuple[str, ...]]] = {
    "mapping": (
        MappingSetting,
        "Time the building of kernel maps, figure by figure of the papers, with charts.",
        (),
    ),
    "layers": (
        LayersSetting,
        "Time single convolutions: forward and training, on an existing map and with a new one.",
        ("layers",),
    ),
    "networks": (
        NetworksSetting,
        "Time networks: inference and training steps, from shuffled cells and on planned input.",
        ("networks",),
    ),
    "native": (
        NativeSetting,
        "Time convolution on native points beside voxels: layers, ResNet18, triplets and memory.",
        (),
    ),
    "latency": (
        LatencySetting,
        "Time networks from points to features, scan after scan: as one graph, eager, by others.",
        (),
    ),
}


def figures_of(*names: str) -> list[Figure[Any]]:
    """Figures of suites; of all if none is named."""
    modules = [
        import_module(f"pcnn.bench.{name}.figures")
        for name in names or (*SUITES, "step", "solvers")
    ]
    return [figure for module in modules for figure in module.FIGURES]
