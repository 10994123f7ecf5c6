"""Triplets and products of a convolution, computed apart from the engines and in float64.

Only the relation ``in = stride * out + dilation * slot - padding`` is shared with what is checked;
the search, the products and their gradients are written anew here, the plain way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.geometry import Kernel, VoxelGrid

Pair = tuple[Tensor, Tensor]  # rows j of the input, rows i of the output


def triplets(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> list[Pair]:
    """Rows (j, i) of every slot, by binary search among mixed-radix cell numbers."""
    inputs, outputs = _cells(source), _cells(target)
    if not len(inputs) or not len(outputs):
        empty = torch.zeros(0, dtype=torch.int64, device=source.device)
        return [(empty, empty)] * kernel.volume
    low = inputs.min(0).values
    span = inputs.max(0).values - low + 1
    radix = torch.stack([span[1:].prod(), span[2:].prod(), span[3], torch.ones_like(span[3])])
    numbers, order = ((inputs - low) * radix).sum(1).sort()
    stride = torch.tensor((1, *kernel.stride), device=source.device)
    found = []
    for offset in kernel.offsets:
        place = outputs * stride + torch.tensor((0, *offset), device=source.device) - low
        inside = ((place >= 0) & (place < span)).all(1)
        wanted = (place * radix).sum(1)
        position = torch.searchsorted(numbers, wanted).clamp(max=len(numbers) - 1)
        hit = inside & (numbers[position] == wanted)
        found.append((order[position[hit]], hit.nonzero()[:, 0]))
    return found


def _cells(grid: VoxelGrid) -> Tensor:
    """Batch and coordinates ``[N, 4]`` int64 in units of the grid's own voxels."""
    step = torch.tensor((1, *grid.tensor_stride), device=grid.device)
    return torch.div(grid.coords.to(torch.int64), step, rounding_mode="floor")


@dataclass(frozen=True, eq=False)
class Products:
    """What a layer computes, in float64.

    Args:
        out: ``[N_out, C_out]``.
        grad_x: ``[N_in, C_in]``, gradient of ``(out * grad).sum()``.
        grad_weight: ``[K, C_in, C_out]``, likewise.
    """

    out: Tensor
    grad_x: Tensor
    grad_weight: Tensor


def output(pairs: list[Pair], x: Tensor, weight: Tensor, n_out: int) -> Tensor:
    """Output ``[n_out, C_out]`` of one convolution; arguments as in `products`."""
    x, weight = x.detach().double(), weight.detach().double()
    out = x.new_zeros(n_out, weight.shape[2])
    for slot, (j, i) in enumerate(pairs):
        out.index_add_(0, i, x[j] @ weight[slot])
    return out


def dense_weight(weight: Tensor, groups: int) -> Tensor:
    """Weights ``[K, C_in, C_out]`` of a convolution in groups: zero from one group to another."""
    volume, depth, width = weight.shape
    dense = weight.new_zeros(volume, groups, depth, groups, width // groups)
    for group, block in enumerate(weight.detach().chunk(groups, dim=2)):
        dense[:, group, :, group] = block
    return dense.view(volume, groups * depth, width)


def grouped_weight(dense: Tensor, groups: int) -> Tensor:
    """The blocks ``[K, C_in / groups, C_out]`` that `dense_weight` has filled."""
    volume, depth, width = dense.shape
    blocks = dense.view(volume, groups, depth // groups, groups, width // groups)
    return torch.cat([blocks[:, group, :, group] for group in range(groups)], dim=2)


def products(pairs: list[Pair], x: Tensor, weight: Tensor, grad: Tensor) -> Products:
    """Output and gradients of one convolution.

    Args:
        pairs: rows (j, i) of every slot.
        x: ``[N_in, C_in]``, any floating dtype.
        weight: ``[K, C_in, C_out]``.
        grad: ``[N_out, C_out]``, gradient with respect to the output.
    """
    out = output(pairs, x, weight, grad.shape[0])
    x, weight, grad = (tensor.detach().double() for tensor in (x, weight, grad))
    grad_x, grad_weight = torch.zeros_like(x), torch.zeros_like(weight)
    for slot, (j, i) in enumerate(pairs):
        grad_x.index_add_(0, j, grad[i] @ weight[slot].T)
        grad_weight[slot] = x[j].T @ grad[i]
    return Products(out, grad_x, grad_weight)
