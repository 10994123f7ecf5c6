"""Gather, multiply and sum block by block of output rows: the quick dataflow of a CPU.

All triplets of a block of output rows are gathered at once, multiplied slot by slot into one buffer
of products, and every output row sums its own products in a fixed order. Against the loop of the
reference this replaces additions scattered over the output by one pass over each row, and keeps
buffers small enough for the cache. No atomics: two runs give identical bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter, sub

import torch
from torch import Tensor, nn

from pcnn.dataflows.torch_sums import (
    finish,
    joined_groups,
    matrices_of,
    multiply,
    outer,
    rounded,
    rows_of,
)
from pcnn.kernels.conv_spec import ConvSpec

#: ``Tensor.split`` without its wrapper in Python.
_split = torch.split_with_sizes


@dataclass(frozen=True)
class Blocked:
    """Output-stationary sums over blocks of rows, any device, any float dtype.

    Several inputs of a slot are summed before the product, ``sum_j x_j W_k = (sum_j x_j) W_k``, in
    the accumulator's dtype. Else rounding is that of `Reference`, in another order of additions.
    """

    needs: tuple[str, ...] = ("blocks",)
    needs_weight_grad: tuple[str, ...] = ("blocks",)
    fuses: bool = True
    deterministic: bool = True

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        *inputs, _, by_row, row_offsets, segments, shape = layouts
        block_rows, groups = int(shape[1]), spec.groups
        rows, matrices = rows_of(x, spec), matrices_of(w, spec)
        slots = _by_slot(matrices, spec)
        out = rows.new_zeros(n_out, groups * matrices.shape[3])
        # one workspace for all blocks: memory that was just written is still in the cache
        blocks = by_block(segments)
        largest = max((end - start for _, start, end, _, _ in blocks), default=0)
        gather_space = rows.new_empty(largest, rows.shape[1])
        product_space = rows.new_empty(largest, out.shape[1])
        for block, start, end, used, sizes in blocks:
            gathered, products = gather_space[: end - start], product_space[: end - start]
            _gather(rows, inputs, start, end, gathered)
            # one split instead of two slices a slot: half of the host time of small slots
            parts = zip(used, _split(gathered, sizes), _split(products, sizes), strict=True)
            for k, left, terms in parts:
                if groups == 1:
                    torch.mm(left, slots[k], out=terms)
                else:
                    terms.copy_(multiply(left, slots[k]))
            first = block * block_rows
            last = min(n_out, first + block_rows)
            bags = (row_offsets[first:last] - start).to(by_row.dtype)
            order = by_row[start:end] - start
            out[first:last] = nn.functional.embedding_bag(order, products, bags, mode="sum")
        return finish(out, spec)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        *inputs, out_index, _, _, segments, shape = layouts
        left, right, groups = rounded(x, spec), rounded(g, spec), spec.groups
        c_in, c_out = x.shape[1] // groups, g.shape[1] // groups
        out = left.new_zeros(int(shape[0]), groups, c_in, c_out)
        slots = _by_slot(out, spec)
        blocks = by_block(segments)
        largest = max((end - start for _, start, end, _, _ in blocks), default=0)
        input_space = left.new_empty(largest, left.shape[1])
        grad_space = left.new_empty(largest, right.shape[1])
        for _, start, end, used, sizes in blocks:
            gathered, grads = input_space[: end - start], grad_space[: end - start]
            _gather(left, inputs, start, end, gathered)
            torch.index_select(right, 0, out_index[start:end], out=grads)
            if groups > 1:
                gathered, grads = gathered.view(-1, groups, c_in), grads.view(-1, groups, c_out)
            parts = zip(used, _split(gathered, sizes), _split(grads, sizes), strict=True)
            for k, a, b in parts:
                if groups == 1:
                    slots[k].addmm_(a.t(), b)
                else:
                    slots[k].add_(outer(a, b))
        return joined_groups(out, spec)


def _gather(rows: Tensor, inputs: Sequence[Tensor], start: int, end: int, out: Tensor) -> None:
    """Write the sums of a range of bags."""
    in_index, starts = inputs
    if len(starts) > len(in_index):  # every bag holds one input
        torch.index_select(rows, 0, in_index[start:end], out=out)
        return
    first, last = starts[start], starts[end]
    places = (starts[start:end] - first).to(in_index.dtype)
    out.copy_(nn.functional.embedding_bag(in_index[first:last], rows, places, mode="sum"))


def _by_slot(matrices: Tensor, spec: ConvSpec) -> tuple[Tensor, ...]:
    """Views of ``[K, G, A, B]`` in the order of the slots, made at once; no G if it is 1."""
    matrices = matrices.squeeze(1) if spec.groups == 1 else matrices
    return matrices.unbind(0)[:: -1 if spec.mirrored else 1]


def by_block(segments: Tensor) -> list[tuple[int, int, int, tuple[int, ...], list[int]]]:
    """Blocks that have triplets: number, first and one-past-last triplet, slots, their sizes."""
    blocks = []
    for block, group in groupby(segments.tolist(), key=itemgetter(0)):
        _, slots, starts, ends = zip(*group, strict=True)
        sizes = list(map(sub, ends, starts))
        blocks.append((block, starts[0], ends[-1], slots, sizes))
    return blocks
