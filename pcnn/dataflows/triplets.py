"""Triplet after triplet, with what the last one used kept at hand: MVMR and VVOR of PointCNN++."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.listed_pairs import PlainSums
from pcnn.dataflows.reference import Reference, kernels_serve
from pcnn.dataflows.triplet_order import LAYOUTS_OF, Sort, order_of, triplets_of
from pcnn.kernels.product_tiles import ProductShape


@dataclass(frozen=True)
class Triplets:
    """Algorithms 1 and B of PointCNN++: a program walks L neighbours of a list of triplets.

    Any kernel map is served, also one whose slots hold several inputs, and nothing is stored
    besides the result. A program multiplies vectors by one block of the weights without tensor
    cores; the block, the row of features and the sum stay in registers until k, j or i changes.
    This is the paper as it is printed; `WeightStationary` is what its idea has become.

    Sums are float32, added by atomics in an order that differs from run to run. Kernels serve
    float16, bfloat16 and float32 on CUDA; elsewhere, and in float64, the same sums are plain torch.

    Args:
        sort: the number that the list is sorted by. ``k``, the paper's choice, reads weights once
            in a chunk; ``i`` adds to the output once in a row, ``j`` reads features once in a row
            (`pcnn.dataflows.triplet_order.accesses` counts).
        length: triplets L of a program.
        block_out: output channels of a block, a power of two.
        block_in: input channels of a block, a power of two.

    Raises:
        ValueError: another order, no triplets, or a block that is no power of two.
    """

    sort: Sort = "k"
    length: int = 128
    block_out: int = 32
    block_in: int = 32
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
        """See `Dataflow.needs`."""
        return LAYOUTS_OF[self.sort]

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """See `Dataflow.needs_vvor`."""
        return self.needs if self.sort == "k" else (*self.needs, "counts")

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
        *,
        mirrored: bool = False,
        second: Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> Tensor:
        """See `Dataflow.mvmr`."""
        if second is not None or epilogue is not None:
            raise ValueError("triplets fuses neither a second source nor an epilogue")
        how = groups, transposed
        if kernels_serve(x, compute_dtype):
            dtypes = compute_dtype, out_dtype
            return self.by_kernels(x, weight, layouts, n_out, *how, *dtypes, mirrored=mirrored)
        plain = PlainSums.of(x, None, weight, n_out, *how, mirrored, compute_dtype)
        in_index, out_index, counts = self._by_slot(layouts, weight.shape[0])
        plain.add_pairs(in_index, out_index, counts, None, False)
        return plain.sums.to(out_dtype)

    def by_kernels(
        self,
        x: Tensor,
        weight: Tensor,
        layouts: Sequence[Tensor],
        n_out: int,
        groups: int,
        transposed: bool,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """`mvmr` by the Triton kernel: CUDA tensors, or any in Triton's interpreter.

        Raises:
            ValueError: a compute dtype that the kernels do not multiply.
        """
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.triplets import add_mvmr

        compute = compute_type(compute_dtype, self.name)
        shape = ProductShape.of(weight, groups, transposed, mirrored)
        sums = x.new_zeros(n_out, shape.width, dtype=torch.float32)
        order = order_of(self.sort, layouts)
        blocks = self.length, self.block_in, self.block_out
        operands = x.contiguous(), weight.contiguous()
        add_mvmr(sums, *operands, order, self.sort, shape, compute, *blocks)
        return sums.to(out_dtype)

    def vvor(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """See `Dataflow.vvor`."""
        dtypes = compute_dtype, out_dtype
        if kernels_serve(x, compute_dtype):
            return self.vvor_by_kernels(x, grad, layouts, groups, *dtypes, mirrored=mirrored)
        in_index, out_index, counts = self._by_slot(layouts, layouts[-1].shape[0])
        offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).cpu()
        pairs = in_index, out_index, offsets
        return Reference().vvor(x, grad, pairs, groups, *dtypes, mirrored=mirrored)

    def vvor_by_kernels(
        self,
        x: Tensor,
        grad: Tensor,
        layouts: Sequence[Tensor],
        groups: int,
        compute_dtype: torch.dtype,
        out_dtype: torch.dtype,
        *,
        mirrored: bool = False,
    ) -> Tensor:
        """`vvor` by the Triton kernel: CUDA tensors, or any in Triton's interpreter.

        Raises:
            ValueError: a compute dtype that the kernels do not multiply.
        """
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.triplets import vvor

        compute = compute_type(compute_dtype, self.name)
        order, volume = order_of(self.sort, layouts), layouts[-1].shape[0]
        blocks = self.length, self.block_in, self.block_out
        sums = vvor(x, grad, order, self.sort, volume, groups, mirrored, compute, *blocks)
        return sums.to(out_dtype)

    def _by_slot(self, layouts: Sequence[Tensor], volume: int) -> tuple[Tensor, Tensor, Tensor]:
        """``in_index``, ``out_index`` by slot and the triplets of every slot."""
        i, j, k = triplets_of(self.sort, layouts)
        order = torch.argsort(k, stable=True)
        return j[order], i[order], torch.bincount(k, minlength=volume)
