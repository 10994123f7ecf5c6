"""Gather-scatter settings for one layer, measured on sampled inputs as the papers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pcnn.dataflows.gather_scatter import GatherScatter, Stage
from pcnn.dataflows.grouping import Adaptive, Given, Group, Sorted
from pcnn.dataflows.grouping_search import search_adaptive, search_sorted, search_tile
from pcnn.kernels.row_tiles import tiles_of


@dataclass(frozen=True, eq=False)
class Sample:
    """An input of the layer.

    Args:
        x: ``[N_in, C_in]``.
        layouts: tensors of the dataflow's ``needs``, one after another.
        n_out: rows of the output.
    """

    x: Tensor
    layouts: Sequence[Tensor]
    n_out: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Triplets of every slot."""
        return tuple(self.layouts[2].diff().tolist())


def searched(
    dataflow: GatherScatter,
    weight: Tensor,
    samples: Sequence[Sample],
    time: Callable[[Callable[[], object]], float],
    *,
    groups: int = 1,
    compute_dtype: torch.dtype,
    tiles: bool = True,
) -> GatherScatter:
    """Settings of the least time: of the grouping's own kind, and channel tiles.

    The tolerance and threshold of `Adaptive` groups by TorchSparse Algorithm 5, the padding of
    `Sorted` ones likewise, timing the products alone; then tiles by Minuet Algorithm 2, timing
    gather and scatter alone. Other groupings have nothing to search.

    Args:
        dataflow: where the search starts; ``fused``.
        weight: ``[K, C_in / groups, C_out]``.
        samples: inputs of the layer, at least one.
        time: measures a call, in any unit.
        groups: groups of channels.
        compute_dtype: dtype of the products.
        tiles: whether tiles are searched.

    Raises:
        ValueError: no sample, or a dataflow that is not ``fused``.
    """
    if not samples:
        raise ValueError("a search needs at least one sample of the layer's inputs")
    if not dataflow.fused:
        raise ValueError("only fused gather-scatter has phases that are measured: fused=True")

    def stage(flow: GatherScatter, sample: Sample) -> Stage:
        how = sample.n_out, groups, False, compute_dtype, compute_dtype
        return next(flow.stages(sample.x, weight, sample.layouts, *how)[1])

    by_sizes = {sample.sizes: sample for sample in samples}

    def products(sizes: Sequence[int], decided: tuple[Group, ...]) -> float:
        flow = replace(dataflow, grouping=Given(decided))
        return time(stage(flow, by_sizes[tuple(sizes)]).multiply)

    skip = int(samples[0].layouts[3]) if dataflow.identity else -1
    sizes = list(by_sizes)
    found = dataflow
    if isinstance(dataflow.grouping, Adaptive):
        found = replace(found, grouping=search_adaptive(sizes, products, skip=skip))
    elif isinstance(dataflow.grouping, Sorted):
        found = replace(found, grouping=search_sorted(sizes, products, skip=skip))
    if not tiles:
        return found

    def gathers(tile: int) -> float:
        flow = replace(found, gather_tile=tile)
        return sum(time(stage(flow, sample).gather) for sample in samples)

    def scatters(tile: int) -> float:
        flow = replace(found, scatter_tile=tile)
        return sum(time(stage(flow, sample).scatter) for sample in samples)

    c_in, c_out = weight.shape[1] * groups, weight.shape[2]
    gather_tile = search_tile(tiles_of(c_in), gathers)
    return replace(
        found, gather_tile=gather_tile, scatter_tile=search_tile(tiles_of(c_out), scatters)
    )
