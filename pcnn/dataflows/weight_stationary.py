"""Pairs by slot, added by atomics, and near slots by output row before that: Spira section 5.4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.dataflows.gemm import OuterProducts
from pcnn.dataflows.torch_sums import TorchSums, finish, kernels_serve
from pcnn.geometry.layouts import USUAL
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.product_tiles import ProductShape


class Parts(NamedTuple):
    """What a product sums: listed pairs, and dense slots of a table or the central one."""

    in_index: Tensor  # [T] int32
    out_index: Tensor  # [T] int32
    counts: Tensor  # [S] int64, pairs of every listed slot
    sparse: Tensor | None = None  # [S] int32, the listed slots; None: the first S
    both: bool = False  # a pair (i, j) of slot k stands for (j, i) of slot K - 1 - k too
    central: bool = False  # row i meets row i at the central slot, which is not listed
    table: Tensor | None = None  # [N_out, D] int32, input rows of the dense slots
    dense: Tensor | None = None  # [D] int32, the dense slots


@dataclass(frozen=True)
class Hybrid(OuterProducts):
    """Slots of small L1 norm output-stationary, the others weight-stationary.

    Programs of far slots keep to one slot's weight and add every pair to float32 sums by atomics,
    before near slots write each row once: two runs do not give identical bits. At threshold 0 all
    slots are far ones, as in TorchSparse++ and in the code of PointCNN++.
    """

    threshold: int | None = None  # Spira's t: slots of a smaller L1 norm are dense
    half: bool = True  # at threshold 0: read one half of the pairs of a submanifold map
    fuses: bool = True
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and self.threshold < 0:
            raise ValueError(f"threshold must be at least 0, got {self.threshold}")

    @cached_property
    def needs(self) -> tuple[str, ...]:
        if self.threshold == 0:
            return ("half_pairs",) if self.half else ("pairs", "counts")
        return (f"hybrid:{USUAL if self.threshold is None else self.threshold}",)

    def _parts(self, layouts: Sequence[Tensor], volume: int) -> Parts:
        if self.threshold == 0:
            in_index, out_index, counts = layouts[0], layouts[1], layouts[-1]
            both = counts.shape[0] < volume
            return Parts(in_index, out_index, counts, None, both, both and volume % 2 == 1)
        table, dense, in_index, out_index, counts, sparse = layouts
        both = dense.shape[0] + sparse.shape[0] < volume  # half of the sparse slots is listed
        return Parts(in_index, out_index, counts, sparse, both, False, table, dense)

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return self._by_kernels(x, w, layouts, n_out, spec)
        part, plain = self._parts(layouts, w.shape[0]), TorchSums.of(x, w, n_out, spec)
        if part.table is not None and part.dense is not None:
            plain.add_table(part.table, part.dense)
        if part.central:
            plain.add_centre()
        plain.add_pairs(part.in_index, part.out_index, part.counts, part.sparse, part.both)
        return finish(plain.sums, spec)

    def _by_kernels(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.epilogue import finish as finish_by_kernel
        from pcnn.kernels.weight_stationary import add_pairs

        shape, x, w = ProductShape.of(w, spec), x.contiguous(), w.contiguous()
        if spec.skip is not None:
            spec = spec._replace(skip=spec.skip.contiguous())
        part, sums = self._parts(layouts, shape.volume), None
        if part.counts.shape[0]:
            sums = x.new_zeros(n_out, shape.width, dtype=torch.float32)
            pairs = part.in_index, part.out_index, part.counts, part.sparse, part.both
            add_pairs(sums, x, w, *pairs, shape, spec)
            if part.table is None and not part.central:
                return finish_by_kernel(sums, spec.out_dtype, spec.epilogue)
        # last, as it writes every row: what follows the sums then takes no pass of its own
        out = sums
        if out is None or spec.out_dtype != out.dtype:
            out = x.new_empty(n_out, shape.width, dtype=spec.out_dtype)
        write_dense(out, x, w, part.table, part.dense, shape, spec, far=sums)
        return out


#: All slots by pairs, those of submanifold maps by half of them; and by all of them.
WEIGHT_STATIONARY, WHOLE = Hybrid(0), Hybrid(0, half=False)
