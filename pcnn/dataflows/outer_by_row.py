"""Gradients of weights from the neighbour table, as a dataflow that a layer can be given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.outer_products import NEEDS_VVOR_BY_ROW, vvor_by_row
from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.dataflows.reference import accumulator, kernels_serve


@dataclass(frozen=True)
class OuterByRow(OutputStationary):
    """Outputs by implicit GEMM; gradients of weights row by row of the output.

    A row of the gradient is read once for several slots, where other dataflows read it for each of
    its triplets. It pays where most slots are filled and channels are few. Needs a map with at most
    one input in a slot.

    Args:
        blocks: as of `OutputStationary`.
        sections: as of `OutputStationary`.
    """

    sections: bool | None = None

    @property
    def name(self) -> str:
        """Identifier of the setting."""
        usual = self.blocks is None and self.sections is None
        return "outer_by_row" if usual else f"outer_by_row_{super().name}"

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """See `Dataflow.needs_vvor`."""
        return NEEDS_VVOR_BY_ROW

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
        if kernels_serve(x, compute_dtype):
            return vvor_by_row(
                x, grad, layouts, groups, compute_dtype, out_dtype, mirrored=mirrored
            )
        sums = accumulator(compute_dtype)
        left, right = (tensor.to(compute_dtype).to(sums) for tensor in (x, grad))
        left = torch.cat((left, left.new_zeros(1, left.shape[1])))  # what an empty slot reads
        c_in, c_out = x.shape[1] // groups, grad.shape[1] // groups
        right = right.view(-1, groups, c_out)
        columns = layouts[0].t()  # [K, N_out]
        out = []
        for column in columns.flip(0) if mirrored else columns:
            rows = torch.where(column >= 0, column, x.shape[0]).long()
            slot = torch.einsum("ngc,ngd->cgd", left[rows].view(-1, groups, c_in), right)
            out.append(slot.reshape(c_in, groups * c_out))
        return torch.stack(out).to(out_dtype)
