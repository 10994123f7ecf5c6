"""Engines of single figures on networks: the papers' ideas one after another.

A new step is one line here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pcnn.bench.layers.dataflows import Entry, on, served
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import ADAPTIVE, MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.maps import MapBuilder, ZDelta
from pcnn.maps.binary_search import BinarySearch
from pcnn.maps.double_traversed import DoubleTraversed
from pcnn.maps.hash_table import HashTable
from pcnn.ops.engine import Engine, resolve

#: A step: its label, and what it uses.
Step = tuple[str, MapBuilder, Dataflow]

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
#: Spira Fig. 13; the plan of the whole network is the last step, by the engine ``auto``.
SPIRA_STEPS: tuple[Step, ...] = (
    ("hash table", HashTable(), OutputStationary()),
    ("+ z-delta", ZDelta(), OutputStationary()),
    ("+ hybrid, t = 3", ZDelta(product="hybrid:3"), Hybrid(3)),
    ("+ 32-bit keys", ZDelta(product="hybrid:3", key_bits=32), Hybrid(3)),
)


#: The papers' engines, where no engine of their name serves. Spira chooses a dataflow for every
#: layer; its hybrid of threshold 3 stands here for all.
PAPERS: tuple[Step, ...] = (
    ("torchsparse", HashTable(), TORCHSPARSE),
    ("torchsparse++", HashTable(), OutputStationary()),
    ("minuet", DoubleTraversed(), MINUET),
    ("spira", ZDelta(product="hybrid:3"), Hybrid(3)),
)


def torchsparse(device: torch.device) -> list[Entry]:
    """The engine that TorchSparse Fig. 4 takes apart."""
    return [(Engine("torchsparse", on(device, HashTable()), TORCHSPARSE), {})]


def with_papers(engines: Sequence[Engine], device: torch.device) -> list[Entry]:
    """Engines, and the papers' where there is none of their name."""
    names = {engine.name for engine in engines}
    papers: list[Entry] = [
        (Engine(name, on(device, builder), dataflow), {})
        for name, builder, dataflow in PAPERS
        if name not in names
    ]
    return [*((engine, {}) for engine in engines), *served(device, papers)]


def steps(name: str, device: torch.device, chosen: Sequence[Step]) -> list[Entry]:
    """Engines of all steps, and ours at the end."""
    entries: list[Entry] = [
        (Engine(name, on(device, builder), dataflow), {"step": label})
        for label, builder, dataflow in chosen
    ]
    return [*served(device, entries), (resolve("auto"), {"step": "ours, planned"})]
