"""An engine: a map builder and a dataflow, chosen together by one name."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from pcnn.dataflows import Automatic as AutomaticDataflow
from pcnn.dataflows import Dataflow, Reference
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE
from pcnn.dataflows.hybrid import Hybrid
from pcnn.maps import Automatic as AutomaticBuilder
from pcnn.maps import BruteForce, DoubleTraversed, HashTable, MapBuilder, SortedSearch, ZDelta
from pcnn.maps.native import has_kernels


@dataclass(frozen=True)
class Engine:
    """A frozen pair of map builder and dataflow.

    Args:
        name: name in configurations and reports.
        builder: finds the triplets.
        dataflow: computes over them; `pcnn.dataflows.Automatic` stands for one a device.
    """

    name: str
    builder: MapBuilder
    dataflow: Dataflow | AutomaticDataflow

    def serves(self, device: torch.device) -> bool:
        """Whether the builder runs on a device: several are made of device kernels alone."""
        made_of_kernels = isinstance(self.builder, HashTable | DoubleTraversed | ZDelta)
        return has_kernels(device) or not made_of_kernels

    def builder_on(self, device: torch.device) -> MapBuilder:
        """The builder that serves tensors of a device."""
        if isinstance(self.builder, AutomaticBuilder):
            return self.builder.on(device)
        return self.builder

    def dataflow_on(self, device: torch.device) -> Dataflow:
        """The dataflow that serves tensors of a device."""
        if isinstance(self.dataflow, AutomaticDataflow):
            return self.dataflow.on(device)
        return self.dataflow

    def deterministic_on(self, device: torch.device) -> bool:
        """Whether two runs on a device give identical bits."""
        return self.dataflow_on(device).deterministic


#: Engines by name. ``auto`` is the quickest choice there is for every device; those named after a
#: system follow its paper, and search on CUDA devices only.
ENGINES = {
    engine.name: engine
    for engine in (
        Engine("auto", AutomaticBuilder(), AutomaticDataflow()),
        Engine("reference", SortedSearch(), Reference()),
        Engine("torchsparse", HashTable(), TORCHSPARSE),
        Engine("minuet", DoubleTraversed(), MINUET),
        Engine("spira", ZDelta(product="hybrid:3"), Hybrid(3)),
        Engine("brute_force", BruteForce(), Reference()),
    )
}


def check_served(engine: Engine, device: torch.device) -> None:
    """Refuse an engine on a device that it does not serve.

    Raises:
        ValueError: the message names the engines that serve it.
    """
    if not engine.serves(device):
        others = ", ".join(name for name, one in ENGINES.items() if one.serves(device))
        raise ValueError(
            f"engine {engine.name!r} searches with CUDA kernels, but the device is {device.type}; "
            f"there serve {others}"
        )


def resolve(engine: str | Engine | None, deterministic: bool = False) -> Engine:
    """Return the engine of a name; an engine object passes through, ``None`` means ``auto``.

    Args:
        engine: name or engine.
        deterministic: only what gives identical bits in two runs; ``auto`` then leaves out what is
            quicker but adds by atomics.

    Raises:
        ValueError: no engine of that name, or one whose dataflow adds in an order that differs
            from run to run; the message names those there are.
    """
    name = "auto" if engine is None else engine
    if isinstance(name, str) and name not in ENGINES:
        raise ValueError(f"no engine named {name!r}; there are {', '.join(ENGINES)}")
    found = ENGINES[name] if isinstance(name, str) else name
    return _reproducible(found) if deterministic else found


def _reproducible(engine: Engine) -> Engine:
    if isinstance(engine.dataflow, AutomaticDataflow):
        return replace(engine, dataflow=replace(engine.dataflow, reproducible=True))
    if not engine.dataflow.deterministic:
        flows = ((name, one.dataflow) for name, one in ENGINES.items())
        others = [n for n, d in flows if isinstance(d, AutomaticDataflow) or d.deterministic]
        raise ValueError(
            f"engine {engine.name!r} adds by atomics, so two runs differ in the last bits; "
            f"deterministic are {', '.join(others)}"
        )
    return engine
