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

from pcnn.dataflows.reference import Reference
from pcnn.dataflows.torch_sums import kernels_serve
from pcnn.kernels.conv_spec import ConvSpec

#: The number that a list of triplets (i, j, k) is sorted by.
Sort = Literal["k", "i", "j"]

#: Layouts of a kernel map that list its triplets in each order.
LAYOUTS_OF: dict[Sort, tuple[str, ...]] = {
    "k": ("pairs", "counts"),
    "i": ("rows_csr",),
    "j": ("columns_csr",),
}


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
        if self.sort not in LAYOUTS_OF:
            raise ValueError(f"sort must be one of {', '.join(LAYOUTS_OF)}, got {self.sort!r}")
        if self.length < 1:
            raise ValueError(f"length must be at least 1, got {self.length}")
        for name, block in (("block_out", self.block_out), ("block_in", self.block_in)):
            if block < 1 or block & (block - 1):
                raise ValueError(f"{name} must be a power of two, got {block}")

    @property
    def needs(self) -> tuple[str, ...]:
        return LAYOUTS_OF[self.sort]

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        return self.needs if self.sort == "k" else (*self.needs, "counts")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().forward(x, w, self._pairs(layouts, w.shape[0]), n_out, spec)
        from pcnn.kernels.triplets import mvmr

        return mvmr(x, w, *self._order(layouts), n_out, spec, self._blocks).to(spec.out_dtype)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        volume = layouts[-1].shape[0]
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().weight_grad(x, g, self._pairs(layouts, volume), spec)
        from pcnn.kernels.triplets import vvor

        return vvor(x, g, *self._order(layouts), volume, spec, self._blocks).to(spec.out_dtype)

    @property
    def _blocks(self) -> tuple[int, int, int]:
        return self.length, self.block_in, self.block_out

    def _order(self, layouts: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], Sort]:
        """Two listed numbers of every triplet, where runs of the third start, and which it is."""
        first, second, starts = layouts[:3]
        if self.sort == "k":  # those of pairs are the host's
            starts = torch.nn.functional.pad(layouts[3].cumsum(0), (1, 0))
        return (first, second, starts), self.sort

    def _pairs(self, layouts: Sequence[Tensor], volume: int) -> tuple[Tensor, ...]:
        """The layout ``pairs``: triplets by slot."""
        if self.sort == "k":
            return tuple(layouts[:3])
        listed, slots, starts = layouts[:3]
        numbers = torch.arange(starts.shape[0] - 1, dtype=listed.dtype, device=listed.device)
        run = torch.repeat_interleave(numbers, starts.diff(), output_size=listed.shape[0])
        order = torch.argsort(slots, stable=True)
        i, j = (run, listed) if self.sort == "i" else (listed, run)
        ends = torch.bincount(slots, minlength=volume).cumsum(0)
        return j[order], i[order], torch.nn.functional.pad(ends, (1, 0)).cpu()
