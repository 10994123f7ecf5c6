"""Everything that promises the same triplets or the same values; a new engine is one line here."""

from __future__ import annotations

from pcnn.dataflows import Blocked, Dataflow, OutputStationary, Reference
from pcnn.dataflows.gather_scatter import TORCHSPARSE
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import WEIGHT_STATIONARY, WHOLE, Hybrid
from pcnn.geometry.base import Builder
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.maps import BruteForce, DoubleTraversed, HashTable, SortedSearch, Windowed, ZDelta

#: Builders made of device kernels; on a CPU they need the fixture `emulated`.
KERNEL_BUILDERS: list[Builder] = [
    DoubleTraversed(),
    DoubleTraversed(source_block=8, query_block=8),
    HashTable(search="hash"),
    HashTable(search="grid", grid_bytes_per_site=1 << 40),
    Windowed(),
    ZDelta(),
    ZDelta("binary_search", deltas=False),
]
BUILDERS: list[Builder] = [BruteForce(), SortedSearch(), *KERNEL_BUILDERS]
DATAFLOWS: list[Dataflow] = [
    Reference(),
    Blocked(),
    TORCHSPARSE,
    WEIGHT_STATIONARY,
    Hybrid(2),
    Triplets(),
    OutputStationary(),
]
#: Those that serve maps whose slots hold several inputs.
SEVERAL_PER_SLOT: list[Dataflow] = [
    *(flow for flow in DATAFLOWS if flow != Hybrid(2)),
    WHOLE,
    Triplets("i"),
    Triplets("j"),
]
#: Dataflows of device kernels, for tests on a GPU.
CUDA_DATAFLOWS: list[Dataflow] = [
    OutputStationary(),
    OutputStationary(sections=True),
    WEIGHT_STATIONARY,
    WHOLE,
    Hybrid(2),
    TORCHSPARSE,
    Triplets(),
]
#: Those that serve maps whose slots hold several inputs.
CUDA_SEVERAL_PER_SLOT: list[Dataflow] = [
    WEIGHT_STATIONARY,
    WHOLE,
    TORCHSPARSE,
    Triplets("k"),
    Triplets("i", 64, 16, 64),
    Triplets("j"),
    OutputStationary(),
    OutputStationary(GemmBlocks(128, 32, 32, 1, 8, 3)),
]
