"""Sum, mean and maximum of the input rows of every output row of a map."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import accumulator
from pcnn.geometry import KernelMap

#: Features of triplets that a maximum looks at in one go.
BLOCK_ENTRIES = 1 << 24


def reduce_sum(x: Tensor, kernel_map: KernelMap) -> Tensor:
    """Sum of the inputs of every output ``[N_out, C]``."""
    return _sum(x, kernel_map, None)


def _sum(x: Tensor, kernel_map: KernelMap, weight: Tensor | None) -> Tensor:
    """Sum, with a weight for every triplet; no gradient flows to the weights."""
    kernel_map.record_use(("pairs",))
    in_index, out_index = kernel_map.in_index, kernel_map.out_index
    if x.device.type == "cpu":  # other numbers take torch's slow path there
        in_index, out_index = in_index.long(), out_index.long()
    values = x.to(accumulator(x.dtype)).index_select(0, in_index)
    if weight is not None:
        values = values * weight[:, None]
    sums = values.new_zeros(kernel_map.n_out, x.shape[1])
    return sums.index_add_(0, out_index, values).to(x.dtype)


def reduce_mean(x: Tensor, kernel_map: KernelMap) -> Tensor:
    """Mean of the inputs of every output ``[N_out, C]``; 0 where an output has none."""
    # as wide as the sums: in float16 the share of a row of 100,000 has 8 bits left
    counts = torch.zeros(kernel_map.n_out, dtype=accumulator(x.dtype), device=x.device)
    counts.index_add_(0, kernel_map.out_index, counts.new_ones(kernel_map.out_index.shape[0]))
    share = counts.clamp_(min=1).reciprocal_()  # [N_out]
    return _sum(x, kernel_map, share.index_select(0, kernel_map.out_index))


def reduce_max(x: Tensor, kernel_map: KernelMap) -> Tensor:
    """Maximum of the inputs of every output, per channel.

    The row of the maximum is stored and the result gathered from it, so the gradient flows to one
    input per output and channel: among equal ones the lowest row.
    """
    kernel_map.record_use(("pairs",))
    none, channels = x.shape
    if not none:
        return x.new_zeros(kernel_map.n_out, channels) + x.sum()  # 0, and part of the graph
    rows = _argmax(x.detach(), kernel_map)  # [N_out, C], N_in where there is no input
    return x.gather(0, rows.clamp(max=none - 1)).masked_fill(rows == none, 0)


def _argmax(x: Tensor, kernel_map: KernelMap) -> Tensor:
    """Input row of every maximum ``[N_out, C]`` int64; N_in where there is no input."""
    # triplets come block by block, so that little is held at once: twice, first for the maximum,
    # then for the lowest row that has it
    none, channels = x.shape
    lowest = x.new_full((kernel_map.n_out, channels), -torch.inf)
    pairs = kernel_map.in_index, kernel_map.out_index
    size = max(1, BLOCK_ENTRIES // max(1, channels))
    blocks = list(zip(*(side.split(size) for side in pairs), strict=True))
    for in_index, out_index in blocks:
        targets = out_index.long()[:, None].expand(-1, channels)
        lowest.scatter_reduce_(0, targets, x.index_select(0, in_index), "amax")
    rows = torch.full_like(lowest, none, dtype=torch.int32)
    for in_index, out_index in blocks:
        targets = out_index.long()[:, None].expand(-1, channels)
        values = x.index_select(0, in_index)  # [T of the block, C]
        # NaN wins a maximum and equals nothing, so it is looked for by name
        chosen = (values == lowest.gather(0, targets)) | values.isnan()
        rows.scatter_reduce_(0, targets, torch.where(chosen, in_index[:, None], none), "amin")
    return rows.long()


#: Ways to reduce the points of a site over the map of points to sites.
BY_NAME = {"mean": reduce_mean, "sum": reduce_sum, "max": reduce_max}
