"""Gather, multiply, add, one slot at a time: any device, any float dtype, short enough to trust.

The rows of one slot are a few megabytes, so gathered rows and products stay in the cache of a CPU;
that makes this plain loop quicker there than one large gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import TorchSums, finish, joined_groups, outer, rounded
from pcnn.kernels.conv_spec import ConvSpec


@dataclass(frozen=True)
class Reference:
    """The loop over slots that defines the values of every other dataflow.

    Half precision operands are rounded to ``compute_dtype``, then multiplied and summed in float32;
    float64 stays float64.
    """

    needs: tuple[str, ...] = ("pairs",)
    needs_weight_grad: tuple[str, ...] = ("pairs",)
    fuses: bool = True
    deterministic: bool = True

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        in_index, out_index, offsets = layouts
        sums = TorchSums.of(x, w, n_out, spec)
        sums.add_pairs(in_index, out_index, offsets.diff(), None, both=False)
        return finish(sums.sums, spec)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        in_index, out_index, offsets = layouts
        left, right, groups = rounded(x, spec), rounded(g, spec), spec.groups
        c_in, c_out = x.shape[1] // groups, g.shape[1] // groups
        out = left.new_zeros(offsets.shape[0] - 1, groups, c_in, c_out)
        for k, (start, end) in enumerate(pairwise(offsets.tolist())):
            a = left.index_select(0, in_index[start:end])
            b = right.index_select(0, out_index[start:end])
            slot = out[-1 - k if spec.mirrored else k]
            if groups == 1:
                torch.mm(a.t(), b, out=slot[0])
            else:
                slot.copy_(outer(a.view(-1, groups, c_in), b.view(-1, groups, c_out)))
        return joined_groups(out, spec)
