"""Engines of single figures: map builders and dataflows in the settings that a figure compares.

A new setting is one line here. Names are those of the papers' figures; a stand-in is named where it
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from benchmarks import peers
from benchmarks.run import Options
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import ADAPTIVE, MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.gemm import OutputStationary
from pcnn.dataflows.grouping import SEPARATE, SYMMETRIC, Adaptive, Fixed, Grouping, Sorted
from pcnn.dataflows.weight_stationary import WHOLE
from pcnn.geometry.base import Builder
from pcnn.maps import DoubleTraversed, HashTable, SortedSearch, ZDelta
from pcnn.ops.engine import ENGINES, Engine, resolve
from pcnn.ops.engine_settings import SpiraSettings

Settings = Mapping[str, Any]  # values that tell rows apart, by key
#: An engine or an installed package, and the settings of its rows.
Entry = tuple[Engine | peers.Peer, Settings]
Step = tuple[str | int, Builder, Dataflow]  # the value of a setting, and what is used there

#: Engines that are never timed unless they are named: N^2, or the definition of the others.
_SLOW = ("brute_force", "reference")

#: TorchSparse Table 2 and Minuet Fig. 5: ways to group the products of the slots.
GROUPINGS: dict[str, Grouping] = {
    "separate": SEPARATE,
    "symmetric": SYMMETRIC,
    "fixed": Fixed(),
    "adaptive": Adaptive(0.25),
    "sorted": Sorted(0.1),
}

#: TorchSparse Table 3: dtype and data movement, each step with those before it.
MOVEMENT = {
    "float32": ("float32", GatherScatter(locality=False)),
    "half": ("float16", GatherScatter(locality=False)),
    "+ locality-aware": ("float16", GatherScatter()),
}


def compared(options: Options, geometry: str = "voxel") -> list[Entry]:
    """Engines and packages that the options name; all of ours that serve the geometry unless so."""
    every = [n for n, one in ENGINES.items() if one.serves(geometry) and n not in _SLOW]
    every = [name for name in every if ENGINES[name].serves(options.device)]
    names = every if not options.engines or "all" in options.engines else options.engines
    return [(peers.installed(n) if n in peers.PACKAGES else resolve(n), {}) for n in names]


def ours(options: Options) -> list[Engine]:
    return [engine for engine, _ in compared(options) if isinstance(engine, Engine)]


def on(device: torch.device, builder: Builder) -> Builder:
    """A builder that has CUDA kernels, or what stands in for it elsewhere."""
    return builder if device.type == "cuda" else SortedSearch()


def entries(name: str, setting: str, device: torch.device, found: Iterable[Step]) -> list[Entry]:
    """Engines of one name that differ in the value of a setting."""
    return [(Engine(name, on(device, b), flow), {setting: value}) for value, b, flow in found]


def grouped(device: torch.device) -> list[Entry]:
    found = [(name, HashTable(), GatherScatter(one)) for name, one in GROUPINGS.items()]
    return entries("torchsparse", "grouping", device, found)


def layers_of_papers(device: torch.device) -> list[Entry]:
    """The dataflows of the papers' engines, each on its own map."""
    sparse, minuet = HashTable(), DoubleTraversed()
    found: list[tuple[str, str, Builder, Dataflow]] = [
        ("torchsparse++", "output-stationary", sparse, OutputStationary()),
        ("torchsparse++", "weight-stationary", sparse, WHOLE),
        ("torchsparse", "gather-scatter", sparse, TORCHSPARSE),
        ("minuet", "gather-scatter", minuet, MINUET),
        ("spira", "output-stationary", ZDelta(), OutputStationary()),
        ("spira", "weight-stationary", *SpiraSettings(t=0).parts()),
        ("spira", "hybrid", *SpiraSettings(t=3).parts()),
    ]
    return [
        (Engine(name, on(device, builder), flow), {"variant": f"{name} {about}"})
        for name, about, builder, flow in found
    ]


def thresholds(size: int, device: torch.device) -> list[Entry]:
    """Spira Fig. 11: all slots sparse (t = 0), a threshold, all dense, for a kernel size."""
    largest = 3 * (size // 2)
    found: list[Step] = [(t, *SpiraSettings(t=t).parts()) for t in range(largest + 1)]
    return entries("spira", "t", device, [*found, (largest + 1, ZDelta(), OutputStationary())])


def ideas_of_spira(device: torch.device) -> list[Entry]:
    """Spira Fig. 14: its ideas one after another."""
    found: list[Step] = [
        ("hash table, output-stationary", HashTable(), OutputStationary()),
        ("packed binary search", ZDelta("binary_search", deltas=False), OutputStationary()),
        ("+ z-delta search", ZDelta(), OutputStationary()),
        ("+ hybrid, t = 3", *SpiraSettings(t=3).parts()),
    ]
    return entries("spira", "step", device, found)


def tiled(device: torch.device, tiles: Sequence[int]) -> list[Entry]:
    """Minuet Fig. 4: gather-scatter with tiles of so many channels."""
    found = [
        (t, DoubleTraversed(), GatherScatter(MINUET.grouping, gather_tile=t, scatter_tile=t))
        for t in tiles
    ]
    return entries("minuet", "tile", device, found)


FIXED_TILE = 4  # channels of a tile in engines before Minuet
#: Minuet Fig. 14. AT: tiles to suit the channels. PG: groups of sorted slots. SS: search in sorted
#: keys. DTBS: double-traversed search.
MINUET_STEPS: tuple[Step, ...] = (
    (
        "baseline",
        HashTable(),
        GatherScatter(ADAPTIVE, gather_tile=FIXED_TILE, scatter_tile=FIXED_TILE),
    ),
    ("+ AT", HashTable(), GatherScatter(ADAPTIVE)),
    ("+ PG", HashTable(), MINUET),
    ("+ SS", ZDelta("binary_search", deltas=False), MINUET),
    ("+ DTBS", DoubleTraversed(), MINUET),
)
#: Spira Fig. 13; the plan of the whole network is the last step, by the engine ``auto``. The third
#: step serves all slots by output row as the paper does, which the hybrid is to be held against.
SPIRA_STEPS: tuple[Step, ...] = (
    ("hash table", HashTable(), OutputStationary()),
    ("+ z-delta", ZDelta(), OutputStationary()),
    ("rows unsorted, t = 7", *SpiraSettings(t=7).parts()),
    ("+ hybrid, t = 3", *SpiraSettings(t=3).parts()),
    ("+ 32-bit keys", *SpiraSettings(t=3, key_bits=32).parts()),
)
#: The papers' engines, where no engine of their name serves. Spira chooses a dataflow for every
#: layer; untuned, all slots are served by output row.
PAPERS: tuple[Step, ...] = (
    ("torchsparse", HashTable(), TORCHSPARSE),
    ("torchsparse++", HashTable(), OutputStationary()),
    ("minuet", DoubleTraversed(), MINUET),
    ("spira", *SpiraSettings().parts()),
)


def with_papers(options: Options) -> list[Entry]:
    """The options' engines, and the papers' where there is none of their name."""
    own = compared(options)
    names = {engine.name for engine, _ in own}
    device = options.device
    papers: list[Entry] = [
        (Engine(str(name), on(device, builder), dataflow), {})
        for name, builder, dataflow in PAPERS
        if name not in names
    ]
    return [*own, *papers]


def steps(name: str, device: torch.device, chosen: Sequence[Step]) -> list[Entry]:
    return [*entries(name, "step", device, chosen), (resolve("auto"), {"step": "ours, planned"})]


def baseline(options: Options) -> list[Entry]:
    """TorchSparse Fig. 11: what it measures itself against, then the papers' engines and ours."""
    plain = GatherScatter(SEPARATE, locality=False)
    return [(Engine("baseline", on(options.device, HashTable()), plain), {}), *with_papers(options)]
