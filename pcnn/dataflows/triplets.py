"""Triplet after triplet, with the last one's operands in registers: MVMR and VVOR of PointCNN++.

Neighbours of the list that share a number share what belongs to it, so the order decides how often
weights and features are read and sums are added: the ablation behind Eq. 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import Reference, kernels_serve
from pcnn.kernels.conv_spec import ConvSpec

#: The number that a list of triplets (i, j, k) is sorted by.
Sort = Literal["k", "i", "j"]

#: Layout of a kernel map that lists its triplets in each order.
LISTS: dict[Sort, str] = {"k": "counts", "i": "rows_csr", "j": "columns_csr"}


@dataclass(frozen=True)
class Triplets:
    """Algorithms 1 and B of PointCNN++: a program walks L neighbours of a list of triplets."""

    sort: Sort = "k"  # the number that the list is sorted by
    length: int = 128  # triplets L of a program
    block_out: int = 32  # output channels of a block, a power of two
    block_in: int = 32  # input channels of a block, a power of two
    fuses: bool = False
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.sort not in LISTS:
            raise ValueError(f"sort must be one of {', '.join(LISTS)}, got {self.sort!r}")
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}")
        for name, block in (("block_out", self.block_out), ("block_in", self.block_in)):
            if block < 1 or block & (block - 1):
                raise ValueError(f"{name} must be a power of two, got {block}")

    @property
    def needs(self) -> tuple[str, ...]:
        return "pairs", LISTS[self.sort]

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        return self.needs

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().forward(x, w, layouts[:3], n_out, spec)
        return self._sums(x, w, layouts, n_out, None, spec)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().weight_grad(x, g, layouts[:3], spec)
        return self._sums(x, g, layouts, 0, layouts[2].shape[0] - 1, spec)

    def _sums(
        self,
        x: Tensor,
        other: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        volume: int | None,
        spec: ConvSpec,
    ) -> Tensor:
        from pcnn.kernels.triplets import sums_of_triplets

        order = layouts[3:]
        if self.sort == "k":  # the starts of pairs are the host's
            order = *layouts[:2], torch.nn.functional.pad(layouts[3].cumsum(0), (1, 0))
        blocks = self.length, self.block_in, self.block_out
        sums = sums_of_triplets(x, other, order, self.sort, n_out, volume, spec, blocks)
        return sums.to(spec.out_dtype)
