"""Sparse convolutions of other packages as each of them defines its own, in plain torch.

Sites are ``[N, 4]`` (batch, x, y, z) in units of their own voxels. Nothing here uses the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

Offset = tuple[int, ...]


def minkowski_offsets(size: Sequence[int]) -> list[Offset]:
    """The index is decoded axis by axis, x first; odd sizes are centred, even ones begin at 0."""
    found = []
    for index in range(size[0] * size[1] * size[2]):
        offset, rest = [], index
        for k in size:
            step, rest = rest % k, rest // k
            offset.append(step - k // 2 if k % 2 else step)
        found.append(tuple(offset))
    return found


def torchsparse_offsets(size: Sequence[int]) -> list[Offset]:
    """From -K // 2 + 1 to K // 2; x fastest where the number of slots is odd."""
    x, y, z = (range(-k // 2 + 1, k // 2 + 1) for k in size)
    if size[0] * size[1] * size[2] % 2:
        return [(i, j, k) for k in z for j in y for i in x]
    return list(itertools.product(x, y, z))


def by_offset(
    inputs: Tensor,
    outputs: Tensor,
    x: Tensor,
    weight: Tensor,
    offsets: list[Offset],
    stride: Sequence[int],
    transposed: bool = False,
) -> Tensor:
    """``out[o] += x[stride * o + offset[k]] @ weight[k]``, backwards if transposed.

    Weights are ``[K, C_in, C_out]``, ``[C_in, C_out]`` of one slot, or with an axis of one group.
    """
    weight = weight.reshape(len(offsets), *weight.shape[-2:])
    fine, coarse = (outputs, inputs) if transposed else (inputs, outputs)
    rows = {tuple(site): row for row, site in enumerate(fine.tolist())}
    pairs: list[tuple[list[int], list[int]]] = [([], []) for _ in offsets]
    for number, (batch, *site) in enumerate(coarse.tolist()):
        for k, offset in enumerate(offsets):
            at = (s * c + o for s, c, o in zip(stride, site, offset, strict=True))
            row = rows.get((batch, *at))
            if row is not None:
                pairs[k][transposed].append(number)
                pairs[k][not transposed].append(row)
    y = x.new_zeros(len(outputs), weight.shape[-1])
    for (i, j), slot in zip(pairs, weight, strict=True):
        y = y.index_add(0, torch.tensor(i, dtype=torch.int64), x[j] @ slot)
    return y
