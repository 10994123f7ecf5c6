"""An engine: a map builder and a dataflow, chosen together by one name."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from pcnn.dataflows import Blocked, Dataflow, OutputStationary, Reference
from pcnn.dataflows.weight_stationary import WHOLE
from pcnn.geometry import KernelMap
from pcnn.geometry.base import Builder
from pcnn.geometry.tile_steps import is_huge
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.maps import BruteForce, SortedSearch
from pcnn.maps.base import has_kernels
from pcnn.maps.radius import RadiusSearch
from pcnn.ops.engine_settings import (
    AutoSettings,
    EngineSettings,
    MinuetSettings,
    PointCnnppSettings,
    SpiraSettings,
    TorchSparseSettings,
    setting_names,
)

# made once: compiled code may name them, but not make them
_BLOCKED = Blocked()
_STEPS, _SECTIONS = OutputStationary(), OutputStationary(sections=True)


@dataclass(frozen=True)
class Engine:
    """A frozen pair of map builder and dataflow.

    Args:
        name: name in configurations and reports.
        builder: finds the triplets on voxels; a `RadiusSearch` serves native points alone.
        dataflow: computes over them; ``None``: the usual one of every device and map.
        points: finds the triplets on native points; ``None``: the engine does not serve them,
            unless ``builder`` does.
        reproducible: only dataflows with identical bits in two runs are chosen, here and by
            `pcnn.tune`.
        settings: those that its paper names, which ``builder`` and ``dataflow`` were made of;
            ``None``: it has none.
    """

    name: str
    builder: Builder | RadiusSearch
    dataflow: Dataflow | None = None
    points: RadiusSearch | None = None
    reproducible: bool = False
    settings: EngineSettings | None = None

    @cached_property
    def on_voxels(self) -> Builder | None:
        """The builder that serves voxels, if one does."""
        return None if isinstance(self.builder, RadiusSearch) else self.builder

    @cached_property
    def on_points(self) -> RadiusSearch | None:
        """The builder that serves native points, if one does."""
        return self.builder if isinstance(self.builder, RadiusSearch) else self.points

    @cached_property
    def blocks(self) -> GemmBlocks | None:
        """How the usual implicit GEMM is cut, where the settings say so."""
        return self.settings.blocks if isinstance(self.settings, AutoSettings) else None

    @classmethod
    def of_settings(
        cls, name: str, settings: EngineSettings, points: RadiusSearch | None = None
    ) -> Engine:
        """The engine of its settings."""
        return cls(name, *settings.parts(), points, settings=settings)

    def having(self, **values: Any) -> Engine:
        """The same engine with other settings of its paper, by their names in ``settings``."""
        if not values:
            return self
        known = setting_names(self.settings)
        unknown = ", ".join(name for name in values if name not in known)
        if self.settings is None or unknown:
            there = f"it has {', '.join(known) or 'none'}"
            raise ValueError(f"engine {self.name!r} has no setting {unknown}; {there}")
        settings = replace(self.settings, **values)
        builder, dataflow = settings.parts()
        return replace(self, builder=builder, dataflow=dataflow, settings=settings)

    def builder_of(self, geometry: str) -> Builder | None:
        """What finds triplets on ``voxel`` or ``point``, if anything does."""
        return self.on_points if geometry == "point" else self.on_voxels

    def serves(self, what: str | torch.device) -> bool:
        """True if it serves ``voxel`` or ``point``, or a device: several builders need kernels."""
        if isinstance(what, torch.device):
            return has_kernels(what) or not getattr(self.builder, "device_only", False)
        return self.builder_of(what) is not None

    def unserved(self, what: str | torch.device) -> ValueError:
        """The error about what it does not serve; it names the engines that do."""
        others = ", ".join(name for name, one in ENGINES.items() if one.serves(what))
        asked = {"voxel": "voxels", "point": "native points"}.get(str(what), f"device {what}")
        return ValueError(f"engine {self.name!r} does not serve {asked}; there serve {others}")

    def check(self, *whats: str | torch.device) -> None:
        """Refuse what it does not serve."""
        for what in whats:
            if not self.serves(what):
                raise self.unserved(what)

    def choose(self, kernel_map: KernelMap, device: torch.device) -> Dataflow:
        """The dataflow that computes the products of a layer over a map, from the side it reads."""
        if self.dataflow is not None:
            return self.dataflow
        usual: Dataflow
        if device.type != "cuda":
            usual = _BLOCKED
        elif self.reproducible:
            usual = _STEPS
        elif all(kernel_map.edges.one_per_slot):
            usual = _SECTIONS
        else:
            usual = WHOLE if is_huge(kernel_map) else _STEPS
        return usual if self.blocks is None else _cut(usual, self.blocks)

    def dataflows(self, device: torch.device) -> tuple[Dataflow, ...]:
        """All that it may choose on a device; on voxels the first of them."""
        if self.dataflow is not None:
            return (self.dataflow,)
        if device.type != "cuda":
            return (_BLOCKED,)
        return (_STEPS,) if self.reproducible else (_SECTIONS, _STEPS, WHOLE)


@functools.lru_cache
def _cut(usual: Dataflow, blocks: GemmBlocks) -> Dataflow:
    """The usual dataflow with blocks of its own, where it is cut into blocks."""
    return replace(usual, blocks=blocks) if isinstance(usual, OutputStationary) else usual


#: Engines by name. ``auto`` is the quickest choice there is for every device and map; those named
#: after a system follow its paper, with the settings of `pcnn.ops.engine_settings`. Those for
#: voxels search on CUDA devices only; ``pointcnnpp`` serves native points, with triplets sorted by
#: slot and the sizes of the paper (``having(sort="i")`` for the ablation of Eq. 3).
ENGINES = {
    engine.name: engine
    for engine in (
        Engine.of_settings("auto", AutoSettings(), RadiusSearch()),
        Engine("reference", SortedSearch(), Reference(), RadiusSearch()),
        Engine.of_settings("torchsparse", TorchSparseSettings()),
        Engine.of_settings("minuet", MinuetSettings()),
        Engine.of_settings("spira", SpiraSettings()),
        Engine.of_settings("pointcnnpp", PointCnnppSettings()),
        Engine("brute_force", BruteForce(), Reference()),
    )
}


def resolve(engine: str | Engine | None, deterministic: bool = False, **settings: Any) -> Engine:
    """Return the engine of a name; an engine object passes through, ``None`` means ``auto``."""
    name = "auto" if engine is None else engine
    if isinstance(name, str) and name not in ENGINES:
        raise ValueError(f"no engine named {name!r}; there are {', '.join(ENGINES)}")
    found = (ENGINES[name] if isinstance(name, str) else name).having(**settings)
    return _reproducible(found) if deterministic else found


def _reproducible(engine: Engine) -> Engine:
    if engine.dataflow is not None and not engine.dataflow.deterministic:
        flows = {name: one.dataflow for name, one in ENGINES.items()}
        others = [name for name, flow in flows.items() if flow is None or flow.deterministic]
        raise ValueError(
            f"engine {engine.name!r} adds by atomics, so two runs differ in the last bits; "
            f"deterministic are {', '.join(others)}"
        )
    return replace(engine, reproducible=True)
