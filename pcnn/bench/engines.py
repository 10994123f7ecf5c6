"""Engines of single figures: map builders and dataflows in the settings that a figure compares.

A new setting is one line here. Names are those of the papers' figures; a stand-in is named where it
differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pcnn.bench.place import Params
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import ADAPTIVE, MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Adaptive, Fixed, Grouping, Separate, Sorted, Symmetric
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.maps import MapBuilder, SortedSearch, ZDelta
from pcnn.maps.binary_search import BinarySearch
from pcnn.maps.double_traversed import DoubleTraversed
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine, resolve
from pcnn.ops.engine_settings import SpiraSettings

#: An engine, and the settings that tell its rows from others'.
Entry = tuple[Engine, Params]
#: The value of a setting, and what is used there.
Step = tuple[str | int, MapBuilder, Dataflow]

_CUDA = torch.device("cuda")

#: TorchSparse Table 2 and Minuet Fig. 5: ways to group the products of the slots.
GROUPINGS: dict[str, Grouping] = {
    "separate": Separate(),
    "symmetric": Symmetric(),
    "fixed": Fixed(),
    "adaptive": Adaptive(0.25),
    "sorted": Sorted(0.1),
}

#: TorchSparse Table 3: dtype and data movement, each step with those before it.
MOVEMENT = {
    "float32, scalar": ("float32", GatherScatter(fused=False, locality=False, vectorised=False)),
    "half": ("float16", GatherScatter(fused=False, locality=False, vectorised=False)),
    "+ vectorised": ("float16", GatherScatter(fused=False, locality=False)),
    "+ fused": ("float16", GatherScatter(locality=False)),
    "+ locality-aware": ("float16", GatherScatter()),
}


def on(device: torch.device, builder: MapBuilder) -> MapBuilder:
    """A builder that has CUDA kernels, or what stands in for it elsewhere."""
    return builder if device.type == "cuda" else SortedSearch()


def served(device: torch.device, entries: Sequence[Entry]) -> list[Entry]:
    """Entries whose dataflows run on a device: elsewhere than on a GPU gather-scatter alone."""
    if device.type == "cuda":
        return list(entries)
    return [entry for entry in entries if isinstance(entry[0].dataflow, GatherScatter)]


def entries(name: str, setting: str, device: torch.device, found: Iterable[Step]) -> list[Entry]:
    """Engines of one name that differ in the value of a setting."""
    return served(
        device,
        [
            (Engine(name, on(device, builder), dataflow), {setting: value})
            for value, builder, dataflow in found
        ],
    )


def grouped(device: torch.device) -> list[Entry]:
    """Gather-scatter with every grouping, on the maps of a hash table."""
    found = [(name, HashTable(), GatherScatter(one)) for name, one in GROUPINGS.items()]
    return entries("torchsparse", "grouping", device, found)


def _spira(**settings: Any) -> tuple[MapBuilder, Dataflow]:
    own = SpiraSettings(**settings)
    return own.builder, own.dataflow


def layers_of_papers(device: torch.device) -> list[Entry]:
    """The dataflows of the papers' engines, each on its own map.

    The output-stationary one is masked and sorted here, which only TorchSparse++ has.
    """
    found: list[tuple[str, MapBuilder, Dataflow, str]] = [
        ("torchsparse++", HashTable(), OutputStationary(), "output-stationary"),
        ("torchsparse++", HashTable(), WeightStationary(half=False), "weight-stationary"),
        ("torchsparse", HashTable(), TORCHSPARSE, "gather-scatter"),
        ("minuet", DoubleTraversed(), MINUET, "gather-scatter"),
        ("spira", ZDelta(), OutputStationary(), "output-stationary"),
        ("spira", ZDelta(product="half_pairs"), WeightStationary(), "weight-stationary"),
        ("spira", *_spira(t=3), "hybrid"),
    ]
    return [
        entry
        for name, builder, dataflow, about in found
        for entry in entries(name, "variant", device, [(f"{name}\n{about}", builder, dataflow)])
    ]


def thresholds(size: int) -> list[Entry]:
    """Spira Fig. 11: all slots sparse (t = 0), a threshold, all dense, for a kernel size.

    Every map is written in the layout that its dataflow reads.
    """
    largest = 3 * (size // 2)
    found: list[Step] = [(0, ZDelta(product="half_pairs"), WeightStationary())]
    found += [(t, *_spira(t=t)) for t in range(1, largest + 1)]
    found.append((largest + 1, ZDelta(), OutputStationary()))
    return entries("spira", "t", _CUDA, found)


def ideas_of_spira() -> list[Entry]:
    """Spira Fig. 14: its ideas one after another, the last two of our own."""
    found: list[Step] = [
        ("hash table, output-stationary", HashTable(), OutputStationary()),
        ("packed binary search", BinarySearch(), OutputStationary()),
        ("+ z-delta search", ZDelta(), OutputStationary()),
        ("+ hybrid, t = 3", *_spira(t=3)),
    ]
    return entries("spira", "step", _CUDA, found)


def tiled(device: torch.device, tiles: Sequence[int]) -> list[Entry]:
    """Minuet Fig. 4: gather-scatter with tiles of so many channels."""
    found = [
        (t, DoubleTraversed(), GatherScatter(MINUET.grouping, gather_tile=t, scatter_tile=t))
        for t in tiles
    ]
    return entries("minuet", "tile", device, found)


#: Channels of a tile in engines before Minuet.
FIXED_TILE = 4

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
    ("+ SS", BinarySearch(), MINUET),
    ("+ DTBS", DoubleTraversed(), MINUET),
)
#: Spira Fig. 13; the plan of the whole network is the last step, by the engine ``auto``. The third
#: step serves all slots by output row as the paper does, which the hybrid is to be held against.
SPIRA_STEPS: tuple[Step, ...] = (
    ("hash table", HashTable(), OutputStationary()),
    ("+ z-delta", ZDelta(), OutputStationary()),
    ("rows unsorted, t = 7", *_spira(t=7)),
    ("+ hybrid, t = 3", *_spira(t=3)),
    ("+ 32-bit keys", *_spira(t=3, key_bits=32)),
)


#: The papers' engines, where no engine of their name serves. Spira chooses a dataflow for every
#: layer; untuned, all slots are served by output row.
PAPERS: tuple[Step, ...] = (
    ("torchsparse", HashTable(), TORCHSPARSE),
    ("torchsparse++", HashTable(), OutputStationary()),
    ("minuet", DoubleTraversed(), MINUET),
    ("spira", *_spira()),
)


def with_papers(engines: Sequence[Engine], device: torch.device) -> list[Entry]:
    """Engines, and the papers' where there is none of their name."""
    names = {engine.name for engine in engines}
    papers: list[Entry] = [
        (Engine(str(name), on(device, builder), dataflow), {})
        for name, builder, dataflow in PAPERS
        if name not in names
    ]
    return [*((engine, {}) for engine in engines), *served(device, papers)]


def steps(name: str, device: torch.device, chosen: Sequence[Step]) -> list[Entry]:
    """Engines of all steps, and ours at the end."""
    return [*entries(name, "step", device, chosen), (resolve("auto"), {"step": "ours, planned"})]
