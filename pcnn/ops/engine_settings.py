"""Settings of engines: one frozen object an engine, with every setting its paper names.

A setting is reached by the same word everywhere: ``resolve("minuet", padding=0.3)``,
``engine.having(padding=0.3)``, and ``engine.padding=0.3`` on the command line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge

from pcnn.config.values import check_fields
from pcnn.dataflows import Dataflow
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import (
    EPSILONS,
    SEPARATE,
    SYMMETRIC,
    THRESHOLDS,
    Adaptive,
    Fixed,
    Grouping,
    Sorted,
)
from pcnn.dataflows.triplets import Sort, Triplets
from pcnn.dataflows.weight_stationary import Hybrid
from pcnn.geometry import KernelMap
from pcnn.geometry.base import Builder
from pcnn.geometry.layouts import slot_norms
from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.kernels.conv_spec import tf32_allowed
from pcnn.kernels.gemm_blocks import GemmBlocks, default_blocks
from pcnn.kernels.product_tiles import tiles_of
from pcnn.maps import DoubleTraversed, HashTable, Windowed, ZDelta
from pcnn.maps.radius import RadiusSearch
from pcnn.ranges import Count, Natural, Share

if TYPE_CHECKING:
    from typing_extensions import Self

Parts = tuple[Builder | RadiusSearch, Dataflow | None]


class LayerSizes(NamedTuple):
    """What settings of a layer are searched by."""

    kernel_map: KernelMap  # from the side on which the layer reads it
    c_in: int  # input channels of a group of channels
    c_out: int  # output channels of a group of channels
    dtype: torch.dtype  # that operands are rounded to
    device: torch.device  # where it is computed


@dataclass(frozen=True)
class EngineSettings:
    """Choices that the paper of an engine leaves open; subclasses name the paper's own."""

    def __post_init__(self) -> None:
        check_fields(self)

    def parts(self) -> Parts:
        """The map builder and the dataflow of these settings, as of an `Engine`."""
        raise NotImplementedError

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """Settings that are searched for one layer, these first; the builder stays."""
        yield self

    def changed(self, usual: EngineSettings) -> dict[str, Any]:
        """Those that are not the usual ones, by name."""
        own, others = asdict(self), asdict(usual)
        return {name: value for name, value in own.items() if value != others[name]}

    def others(self, name: str, values: Iterable[Any]) -> Iterator[Self]:
        """These with other values of one of them."""
        own = getattr(self, name)
        yield from (replace(self, **{name: value}) for value in values if value != own)


@dataclass(frozen=True)
class AutoSettings(EngineSettings):
    """The usual choice of every device and map."""

    blocks: GemmBlocks | None = None  # how the implicit GEMM is cut into programs

    def __post_init__(self) -> None:
        if isinstance(self.blocks, Mapping):
            object.__setattr__(self, "blocks", GemmBlocks.of(self.blocks))
        elif self.blocks is not None and not isinstance(self.blocks, GemmBlocks):
            raise ValueError(f"blocks must be numbers by name, or null, got {self.blocks!r}")

    def parts(self) -> Parts:
        return Windowed(), None

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """On a GPU the usual blocks, and those that differ from them in one number."""
        yield self
        one_input = all(layer.kernel_map.edges.one_per_slot)
        if layer.device.type != "cuda" or layer.dtype == torch.float64 or not one_input:
            return
        volume, tiles = layer.kernel_map.volume, -(-layer.kernel_map.n_out // TILE_ROWS)
        sizes = layer.c_in, layer.c_out, tiles, volume, layer.dtype
        yield from self.others("blocks", default_blocks(*sizes, not tf32_allowed()).neighbours())


@dataclass(frozen=True)
class TorchSparseSettings(EngineSettings):
    """TorchSparse (MLSys 2022)."""

    epsilon: Share = 0.25  # tolerance of redundant computation in a group, section 4.2.3
    threshold: Natural | None = None  # rows S from which slots are multiplied one by one
    grouping: Literal["adaptive", "fixed", "symmetric", "separate"] = "adaptive"  # adaptive
    locality: bool = True  # gather in the order of input rows, scatter in that of output rows
    search: Literal["auto", "hash", "grid"] = "auto"  # how sites are kept
    simplified: bool = True  # loops of known length in the search
    symmetry: bool = True  # half of the slots of a submanifold map is searched

    def parts(self) -> Parts:
        table = HashTable(
            search=self.search,
            simplified=self.simplified,
            symmetry=self.symmetry,
        )
        groupings: dict[str, Grouping] = {
            "adaptive": Adaptive(self.epsilon, _rows(self.threshold)),
            "fixed": Fixed(),
            "symmetric": SYMMETRIC,
            "separate": SEPARATE,
        }
        return table, GatherScatter(groupings[self.grouping], self.locality)

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """Tolerances and thresholds of Algorithm 5, of those with equal groups one."""
        rows = (None if threshold == math.inf else int(threshold) for threshold in THRESHOLDS[::-1])
        searched = (
            replace(self, grouping="adaptive", epsilon=epsilon, threshold=threshold)
            for threshold in rows
            for epsilon in EPSILONS
        )
        yield from _of_unlike_groups((self, *searched), layer.kernel_map)


@dataclass(frozen=True)
class MinuetSettings(EngineSettings):
    """Minuet (EuroSys 2024)."""

    padding: Annotated[float, Ge(-1)] = 0.15  # largest padding overhead of a group of sorted slots
    threshold: Natural | None = None  # rows from which slots are multiplied one by one
    gather_tile: Count | None = None  # channels of a program of the gather, section 5.2.1
    scatter_tile: Count | None = None  # the same of the scatter
    streams: Count = 4  # that products are spread over
    source_block: Count = 256  # B, input keys of a block of the search, section 5.1
    query_block: Count = 512  # C, largest number of queries of a block

    def parts(self) -> Parts:
        search = DoubleTraversed(source_block=self.source_block, query_block=self.query_block)
        tiles = self.gather_tile, self.scatter_tile, self.streams
        return search, GatherScatter(Sorted(self.padding, _rows(self.threshold)), True, *tiles)

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """Padding overheads, then tiles of the channels, each with the others as they are."""
        overheads = (-1.0, *(step / 10 for step in range(21)))
        groups = self.others("padding", overheads)
        yield from _of_unlike_groups((self, *groups), layer.kernel_map)
        yield from self.others("gather_tile", tiles_of(layer.c_in)[:-1])
        yield from self.others("scatter_tile", tiles_of(layer.c_out)[:-1])
        yield from self.others("streams", [1])


@dataclass(frozen=True)
class SpiraSettings(EngineSettings):
    """Spira (MLSys 2026)."""

    t: Natural | None = None  # slots of a smaller L1 norm are served by output row, section 5.4
    key_bits: Literal["auto", 32, 64] = "auto"  # of the packed keys of the search

    def parts(self) -> Parts:
        return ZDelta(key_bits=self.key_bits), Hybrid(self.t)

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """Every t, from all slots by pairs to all of them by output row."""
        largest = max(slot_norms(layer.kernel_map)) + 1
        own = None if self.t is None else min(self.t, largest)
        others = (t for t in range(largest + 1) if t != own)
        yield self
        yield from (replace(self, t=t) for t in others)


@dataclass(frozen=True)
class PointCnnppSettings(EngineSettings):
    """PointCNN++ (CVPR 2026), on native points."""

    sort: Sort = "k"  # what triplets are sorted by, k, i or j
    length: Count = 128  # L, triplets of a program of Algorithm 1
    block_in: Count = 32  # input channels of a block, a power of two
    block_out: Count = 32  # output channels of a block, a power of two

    def parts(self) -> Parts:
        return RadiusSearch(), Triplets(self.sort, self.length, self.block_out, self.block_in)

    def candidates(self, layer: LayerSizes) -> Iterator[EngineSettings]:
        """Lengths L, and blocks of the channels, each with the other settings as they are."""
        yield self
        yield from self.others("length", (32, 64, 128, 256))
        for block in (16, 32, 64):
            if block != self.block_in:
                yield replace(self, block_in=block, block_out=block)


def setting_names(settings: EngineSettings | None) -> tuple[str, ...]:
    """Names of the settings of an engine, none of one without."""
    return () if settings is None else tuple(field.name for field in fields(settings))


def _rows(threshold: int | None) -> float:
    return math.inf if threshold is None else threshold


def _of_unlike_groups(
    searched: Iterable[EngineSettings], kernel_map: KernelMap
) -> Iterator[EngineSettings]:
    """Of settings that multiply the slots of a map in the same groups the first ones."""
    sizes = kernel_map.offsets.diff().tolist()
    skip = int(kernel_map.layout("identity_slot")[0])
    seen = set()
    for one in searched:
        _, dataflow = one.parts()
        assert isinstance(dataflow, GatherScatter)
        groups = frozenset(dataflow.grouping.groups(sizes, skip))
        if groups not in seen:
            seen.add(groups)
            yield one
