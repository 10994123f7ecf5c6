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
from pcnn.dataflows.torch_sums import TorchSums, kernels_serve
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
    """Algorithms 1 and B of PointCNN++: a program walks L neighbours of a list of triplets.

    Any kernel map is served, also one whose slots hold several inputs, and nothing is stored
    besides the result. A program multiplies vectors by one block of the weights without tensor
    cores; the block, the row of features and the sum stay in registers until k, j or i changes.
    This is the paper as it is printed; `WeightStationary` is what its idea has become.

    Sums are float32, added by atomics in an order that differs from run to run. Kernels serve
    float16, bfloat16 and float32 on CUDA; elsewhere, and in float64, the same sums are plain torch.
    """

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
    def name(self) -> str:
        """``triplets`` and the order, followed by sizes that are not the paper's."""
        sizes = self.length, self.block_out, self.block_in
        own = "" if sizes == (128, 32, 32) else "_" + "x".join(map(str, sizes))
        return f"triplets_{self.sort}{own}"

    @property
    def needs(self) -> tuple[str, ...]:
        return LAYOUTS_OF[self.sort]

    @property
    def needs_weight_grad(self) -> tuple[str, ...]:
        return self.needs if self.sort == "k" else (*self.needs, "counts")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if spec.skip is not None or spec.epilogue is not None:
            raise ValueError("triplets fuses neither a skip connection nor an epilogue")
        if kernels_serve(x, spec.compute_dtype):
            return self.by_kernels(x, w, layouts, n_out, spec)
        plain = TorchSums.of(x, w, n_out, spec)
        plain.add_pairs(*self._by_slot(layouts, w.shape[0]), None, False)
        return plain.sums.to(spec.out_dtype)

    def by_kernels(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """`forward` by the Triton kernel: CUDA tensors, or any in Triton's interpreter."""
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.triplets import mvmr

        compute_type(spec.compute_dtype, self.name)
        order, blocks = order_of(self.sort, layouts), (self.length, self.block_in, self.block_out)
        return mvmr(x, w, order, self.sort, n_out, spec, blocks).to(spec.out_dtype)

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return self.weight_grad_by_kernels(x, g, layouts, spec)
        in_index, out_index, counts = self._by_slot(layouts, layouts[-1].shape[0])
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).cpu()
        return Reference().weight_grad(x, g, (in_index, out_index, offsets), spec)

    def weight_grad_by_kernels(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        """`weight_grad` by the Triton kernel: CUDA tensors, or any in Triton's interpreter."""
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.triplets import vvor

        compute_type(spec.compute_dtype, self.name)
        order, volume = order_of(self.sort, layouts), layouts[-1].shape[0]
        blocks = self.length, self.block_in, self.block_out
        return vvor(x, g, order, self.sort, volume, spec, blocks).to(spec.out_dtype)

    def _by_slot(self, layouts: Sequence[Tensor], volume: int) -> tuple[Tensor, Tensor, Tensor]:
        """``in_index``, ``out_index`` by slot and the triplets of every slot."""
        i, j, k = triplets_of(self.sort, layouts)
        order = torch.argsort(k, stable=True)
        return j[order], i[order], torch.bincount(k, minlength=volume)


def order_of(sort: Sort, layouts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The tensors that the kernels read, from the layouts `LAYOUTS_OF` an order."""
    if sort == "k":
        in_index, out_index, _, counts = layouts
        return in_index, out_index, counts
    listed, slots, starts = layouts[:3]
    return listed, slots, starts


def triplets_of(sort: Sort, layouts: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """``i``, ``j`` and ``k`` of every triplet, ``[T]`` int64, in their order."""
    first, second, runs = order_of(sort, layouts)
    lengths = runs if sort == "k" else runs[1:] - runs[:-1]
    numbers = torch.arange(lengths.shape[0], device=lengths.device)
    third = torch.repeat_interleave(numbers, lengths, output_size=first.shape[0])
    a, b = first.long(), second.long()
    if sort == "k":
        return b, a, third
    return (third, a, b) if sort == "i" else (a, third, b)
