"""Implicit GEMM: every output row is summed where it is stored, over the slots it fills.

Rows are ordered so that those of a tile fill nearly the same slots, and a tile multiplies only
those (`pcnn.geometry.tile_steps`). One pass, no intermediate.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pcnn.dataflows.torch_sums import Reference, TorchSums, finish, kernels_serve
from pcnn.geometry.tile_steps import pairs_of_steps, table_of_steps
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gemm_blocks import GemmBlocks


class OuterProducts:
    """Base of dataflows whose weight gradient walks the pairs of every slot; deterministic."""

    needs_weight_grad: tuple[str, ...] = ("pairs", "counts")

    def weight_grad(
        self, x: Tensor, g: Tensor, layouts: Sequence[Tensor], spec: ConvSpec
    ) -> Tensor:
        in_index, out_index, _, counts = layouts
        if not kernels_serve(x, spec.compute_dtype):
            offsets = pad(counts.cumsum(0), (1, 0))  # a plan in a graph tells the host of none
            return Reference().weight_grad(x, g, (in_index, out_index, offsets), spec)
        from pcnn.kernels.outer_products import outer_products

        return outer_products(x, g, in_index, out_index, counts, spec)


@dataclass(frozen=True)
class OutputStationary(OuterProducts):
    """Implicit GEMM over the steps of tiles, in Triton; plain torch on a CPU and in float64.

    It serves every map. Where slots hold several inputs, as on native points, tensor cores multiply
    one input of a slot after another; slots of many inputs, as on dense clouds, are summed at the
    gather, ``sum_j x_j W_k = (sum_j x_j) W_k``, and that sum is rounded to the compute dtype once
    more before it is multiplied, so in float16 it must stay below 65504.
    """

    blocks: GemmBlocks | None = None  # shape of the work of a program
    #: whether large kernels on sparse maps are walked section by section; these meet by atomics
    sections: bool = False
    fuses = True

    @property
    def needs(self) -> tuple[str, ...]:
        return ("fitting_steps",) if self.sections else ("steps",)

    @property
    def deterministic(self) -> bool:
        return not self.sections

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return _launch()(x, w, layouts, n_out, spec, self.blocks)
        plain = TorchSums.of(x, w, n_out, spec)
        volume = len(plain.matrices)
        if len(layouts) > 5:
            in_index, out_index, sizes = pairs_of_steps(layouts)
            plain.add_pairs(in_index, out_index, sizes, None, both=False)
        else:
            plain.add_table(table_of_steps(layouts, n_out, volume), torch.arange(volume))
        return finish(plain.sums, spec)


@functools.cache
def _launch() -> Callable[..., Tensor]:
    """The launch of the kernel; only installs with a GPU have Triton."""
    from pcnn.kernels.gather_gemm import launch_gather_gemm

    return launch_gather_gemm
