"""The weight gradient on tensor cores, for every dataflow that runs in Triton."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from pcnn.dataflows.reference import Reference
from pcnn.dataflows.torch_sums import kernels_serve
from pcnn.kernels.conv_spec import ConvSpec


class OuterProducts:
    """Base of dataflows whose weight gradient walks the pairs of every slot; deterministic."""

    needs_weight_grad: tuple[str, ...] = ("pairs", "counts")

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        if not kernels_serve(x, spec.compute_dtype):
            return Reference().weight_grad(x, g, layouts[:3], spec)
        from pcnn.kernels.outer_products import outer_products

        in_index, out_index, _, counts = layouts
        return outer_products(x, g, in_index, out_index, counts, spec)
