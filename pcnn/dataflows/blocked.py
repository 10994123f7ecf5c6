"""Gather, multiply and sum block by block of output rows: the quick dataflow of a CPU.

All triplets of a block of output rows are gathered at once, multiplied slot by slot into one buffer
of products, and every output row sums its own products in a fixed order. Against the loop of the
reference this replaces additions scattered over the output by one pass over each row, and keeps
buffers small enough for the cache. No atomics: two runs give identical bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from pcnn.dataflows.reference import accumulator, multiply, per_group

Segment = tuple[int, int, int, int]  # block, slot, first and one-past-last triplet


@dataclass(frozen=True)
class Blocked:
    """Output-stationary sums over blocks of rows, any device, any float dtype.

    Rounding is that of `Reference`; only the order of additions differs.
    """

    name: str = "blocked"
    needs: tuple[str, ...] = ("blocks",)
    deterministic: bool = True

    def mvmr(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
    ) -> Tensor:
        """See `Dataflow.mvmr`."""
        in_index, _, by_row, row_offsets, segments, shape = layouts
        block_rows = int(shape[1])
        sums = accumulator(compute_dtype)
        rows = x.to(compute_dtype).to(sums)
        matrices = per_group(weight.to(compute_dtype).to(sums), groups)  # [K, G, C_in/G, C_out/G]
        if transposed:
            matrices = matrices.transpose(2, 3)
        out = rows.new_zeros(n_out, groups * matrices.shape[3])
        for block, parts in by_block(segments):
            start, end = parts[0][2], parts[-1][3]
            gathered = rows.index_select(0, in_index[start:end])
            products = rows.new_empty(end - start, out.shape[1])
            for _, k, a, b in parts:
                a, b = a - start, b - start
                if groups == 1:
                    torch.mm(gathered[a:b], matrices[k, 0], out=products[a:b])
                else:
                    products[a:b] = multiply(gathered[a:b], matrices[k])
            first = block * block_rows
            last = min(n_out, first + block_rows)
            bags = (row_offsets[first:last] - start).to(by_row.dtype)
            terms = by_row[start:end] - start
            out[first:last] = nn.functional.embedding_bag(terms, products, bags, mode="sum")
        return out.to(out_dtype)

    def vvor(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
    ) -> Tensor:
        """See `Dataflow.vvor`."""
        in_index, out_index, _, _, segments, shape = layouts
        sums = accumulator(compute_dtype)
        left, right = (tensor.to(compute_dtype).to(sums) for tensor in (x, grad))
        c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
        out = left.new_zeros(int(shape[0]), groups, c_in, c_out)
        for _, parts in by_block(segments):
            start, end = parts[0][2], parts[-1][3]
            inputs = left.index_select(0, in_index[start:end]).view(-1, groups, c_in)
            grads = right.index_select(0, out_index[start:end]).view(-1, groups, c_out)
            for _, k, a, b in parts:
                a, b = a - start, b - start
                if groups == 1:
                    out[k, 0].addmm_(inputs[a:b, 0].t(), grads[a:b, 0])
                else:
                    out[k] += torch.einsum("tgc,tgd->gcd", inputs[a:b], grads[a:b])
        # group-major output channels: [K, C_in/G, G * C_out/G]
        return out.transpose(1, 2).reshape(out.shape[0], c_in, groups * c_out).to(out_dtype)


def by_block(segments: Tensor) -> Iterator[tuple[int, list[Segment]]]:
    """Segments of every block that has triplets; ``segments`` ``[S, 4]`` lives on the host."""
    for block, parts in groupby(segments.tolist(), key=lambda segment: segment[0]):
        yield block, list(parts)
