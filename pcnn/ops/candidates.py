"""Dataflows worth trying for a product of a layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from pcnn.dataflows import Blocked, Dataflow, Reference, SummedBlocks
from pcnn.dataflows.gather_scatter import GatherScatter
from pcnn.dataflows.grouping import Sorted
from pcnn.dataflows.hybrid import Hybrid
from pcnn.dataflows.outer_by_row import OuterByRow
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.row_stationary import RowStationary
from pcnn.dataflows.weight_stationary import WeightStationary
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.gemm_blocks import GemmBlocks, default_blocks
from pcnn.kernels.tf32 import tf32_allowed
from pcnn.ops.layer_products import LayerCall

#: Thresholds of hybrids: the L1 norms that Spira's tuning chose, where it chose any.
THRESHOLDS = (2,)


def default_candidates(
    call: LayerCall, product: str, reproducible: bool = False
) -> tuple[Dataflow, ...]:
    """What `pcnn.tune` tries unless told otherwise.

    On a CPU there is one quick dataflow, for float64 on a GPU one that serves it. On a GPU the
    others are tried: implicit GEMM with the blocks that an untuned layer gets and with those that
    differ from them in one setting, Spira's hybrids, weight-stationary and gather-scatter flows.
    Maps whose slots hold several inputs have no tables: there sums at the gather take the part of
    implicit GEMM.

    Args:
        call: of the layer.
        product: ``forward``, ``transposed`` or ``vvor``.
        reproducible: only what gives identical bits in two runs.
    """
    found = _candidates(call, product, False if reproducible else None)
    return tuple(one for one in found if one.deterministic or not reproducible)


def _candidates(call: LayerCall, product: str, sections: bool | None) -> tuple[Dataflow, ...]:
    if call.device.type != "cuda":
        return (Blocked() if all(call.kernel_map.edges.one_per_slot) else SummedBlocks(),)
    if call.dtype == torch.float64:
        return (Reference(),)
    grouped = GatherScatter(Sorted(0.25))
    if not all(call.kernel_map.edges.one_per_slot):
        several = RowStationary(), WeightStationary(half=False), grouped
        return several if product != "vvor" else (RowStationary(), grouped)
    if product == "vvor":
        return OutputStationary(sections=sections), OuterByRow(), grouped
    side = call.c_in // call.groups, call.c_out // call.groups
    c_in, c_out = side[::-1] if product == "transposed" else side
    tiles = -(-call.rows(product) // TILE_ROWS)
    exact = not tf32_allowed()
    usual = default_blocks(c_in, c_out, tiles, call.kernel_map.volume, call.dtype, exact)
    # rows ordered as an untuned layer has them, so that it can use what is found
    found: list[Dataflow] = [
        OutputStationary(blocks, sections) for blocks in (None, *neighbours(usual))
    ]
    found.append(WeightStationary())
    if call.kernel_map.symmetric:
        found += [Hybrid(threshold) for threshold in THRESHOLDS]
    return (*found, grouped)


def neighbours(blocks: GemmBlocks) -> Iterator[GemmBlocks]:
    """Blocks that differ from others in one setting; a kernel has to be compiled for each."""
    yield replace(blocks, rows=64 if blocks.rows > 64 else 128)
    if blocks.channels_out > 32:
        yield replace(blocks, channels_out=blocks.channels_out // 2)
    if blocks.channels_in > 32:
        yield replace(blocks, channels_in=blocks.channels_in // 2)
    yield replace(blocks, split=blocks.split // 2 if blocks.split > 1 else 2)
    yield replace(blocks, warps=8 if blocks.warps < 8 else 4)
