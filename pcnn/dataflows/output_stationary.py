"""Masked implicit GEMM: every output row is summed where it is stored, over the slots it fills.

Rows are ordered by their slot masks, so that the rows of a tile fill nearly the same slots, and a
tile multiplies only those (`pcnn.geometry.layouts.tiles`). One pass, no atomics, no intermediate.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.outer_products import OuterProducts
from pcnn.dataflows.torch_sums import (
    finish,
    in_given_dtype,
    kernels_serve,
    matrices_of,
    rows_of,
)
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.gemm_blocks import GemmBlocks


@dataclass(frozen=True)
class OutputStationary(OuterProducts):
    """Implicit GEMM over the row lists of tiles, in Triton; plain torch on a CPU and in float64."""

    blocks: GemmBlocks | None = None  # shape of the work of a program
    sections: bool | None = False  # slots are walked section by section
    fuses = True

    @property
    def name(self) -> str:
        """Identifier of the setting."""
        own = "" if self.blocks is None else f"_{self.blocks.name}"
        return f"output_stationary_{self.needs[0]}{own}"

    @property
    def needs(self) -> tuple[str, ...]:
        if self.sections is None:
            return ("fitting_tiles",)
        return ("section_tiles",) if self.sections else ("tiles",)

    @property
    def deterministic(self) -> bool:
        return self.sections is False

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return _launch()(x, w, layouts, n_out, spec, self.blocks)
        return finish(_in_torch(x, w, layouts, n_out, spec), spec)


@functools.cache
def _launch() -> Callable[..., Tensor]:
    """The launch of the kernel; only installs with a GPU have Triton."""
    from pcnn.kernels.implicit_gemm import launch_implicit_gemm

    return launch_implicit_gemm


def _in_torch(
    x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
) -> Tensor:
    """The same sums in torch operations, one listed slot of all tiles after another."""
    tile_out, tile_slots, tile_counts, tile_rows = layouts
    x, matrices = rows_of(x, spec), matrices_of(w, spec)
    tiles, volume, groups = tile_slots.shape[0], w.shape[0], spec.groups
    c_in, c_out = matrices.shape[2:]
    empty = x.shape[0]
    x = torch.cat((x, x.new_zeros(1, x.shape[1])))  # the last row is what an empty slot reads
    exists = torch.arange(tile_slots.shape[1], device=x.device) < tile_counts[:, None]
    slots = torch.where(exists, tile_slots, 0)  # [tiles, listed]
    if spec.mirrored:
        slots = volume - 1 - slots
    rows = torch.where(exists[..., None] & (tile_rows >= 0), tile_rows, empty)
    products = x.new_zeros(tiles, TILE_ROWS, groups, c_out)
    # [tiles] and [tiles, TILE_ROWS], one listed slot after another
    for slot, row in zip(slots.unbind(1), rows.unbind(1), strict=True):
        gathered = x.index_select(0, row.flatten()).view(tiles, TILE_ROWS, groups, c_in)
        with in_given_dtype(x):
            products += torch.einsum("trgc,tgcd->trgd", gathered, matrices.index_select(0, slot))
    # spare places add to a row that is cut off
    places = torch.where(tile_out >= 0, tile_out, n_out).flatten().long()
    out = x.new_zeros(n_out + 1, groups * c_out)
    return out.index_add_(0, places, products.view(-1, groups * c_out))[:n_out]
