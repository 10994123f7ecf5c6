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

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.outer_products import NEEDS_VVOR, OuterProducts
from pcnn.dataflows.reference import (
    accumulator,
    finish,
    in_given_dtype,
    join,
    kernels_serve,
    per_group,
)
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.gemm_blocks import GemmBlocks

_NOTHING = Epilogue()


@dataclass(frozen=True)
class OutputStationary(OuterProducts):
    """Implicit GEMM over the row lists of tiles, in Triton; plain torch on a CPU and in float64.

    Args:
        blocks: shape of the work of a program; ``None`` chooses by channels and rows.
        sections: slots are walked section by section, each with a row order of its own; sections
            meet in the output by atomics. For large kernels on sparse clouds, whose masks have
            little in common. ``None``: where the map is of that kind.
    """

    blocks: GemmBlocks | None = None
    sections: bool | None = False

    @property
    def name(self) -> str:
        """Identifier of the setting."""
        own = "" if self.blocks is None else f"_{self.blocks.name}"
        return f"output_stationary_{self.needs[0]}{own}"

    @property
    def needs(self) -> tuple[str, ...]:
        """See `Dataflow.needs`."""
        if self.sections is None:
            return ("fitting_tiles",)
        return ("section_tiles",) if self.sections else ("tiles",)

    @property
    def needs_vvor(self) -> tuple[str, ...]:
        """See `Dataflow.needs_vvor`."""
        return NEEDS_VVOR

    @property
    def fuses(self) -> bool:
        """See `Dataflow.fuses`."""
        return True

    @property
    def deterministic(self) -> bool:
        """See `Dataflow.deterministic`."""
        return self.sections is False

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
        if not kernels_serve(x, compute_dtype):
            product = _plain(
                join(x, second), weight, layouts, n_out, groups, transposed, mirrored, compute_dtype
            )
            return finish(product, epilogue, out_dtype)
        follows, tiles = _NOTHING if epilogue is None else epilogue, layouts[2].shape[0]
        return _launch()(
            x,
            weight,
            layouts,
            n_out,
            groups,
            self.blocks,
            compute_dtype,
            out_dtype,
            transposed=transposed,
            mirrored=mirrored,
            adds=tiles > -(-n_out // TILE_ROWS),  # a row has places in several sections
            second=second,
            scale=follows.scale,
            shift=follows.shift,
            residual=follows.residual,
            relu=follows.relu,
        )


@functools.cache
def _launch() -> Callable[..., Tensor]:
    """The launch of the kernel; Triton is imported by those who have a GPU."""
    from pcnn.kernels.implicit_gemm import launch_implicit_gemm

    return launch_implicit_gemm


def _plain(
    x: Tensor,
    weight: Tensor,
    layouts: Sequence[Tensor],
    n_out: int,
    groups: int,
    transposed: bool,
    mirrored: bool,
    compute_dtype: torch.dtype,
) -> Tensor:
    """The same sums in torch operations, one listed slot of all tiles after another."""
    tile_out, tile_slots, tile_counts, tile_rows = layouts
    sums = accumulator(compute_dtype)
    x = x.to(compute_dtype).to(sums)
    matrices = per_group(weight.to(compute_dtype).to(sums), groups)  # [K, G, C_in/G, C_out/G]
    if transposed:
        matrices = matrices.transpose(2, 3)
    tiles, volume = tile_slots.shape[0], weight.shape[0]
    c_in, c_out = matrices.shape[2:]
    x = torch.cat((x, x.new_zeros(1, x.shape[1])))  # the last row is what an empty slot reads
    products = x.new_zeros(tiles, TILE_ROWS, groups, c_out)
    for listed in range(tile_slots.shape[1]):
        there = tile_counts > listed  # [tiles]
        slots = torch.where(there, tile_slots[:, listed], 0).long()
        if mirrored:
            slots = volume - 1 - slots
        rows = tile_rows[:, listed].long()  # [tiles, TILE_ROWS]
        rows = torch.where(there[:, None] & (rows >= 0), rows, x.shape[0] - 1)
        gathered = x[rows].view(tiles, TILE_ROWS, groups, c_in)
        with in_given_dtype(x):
            products += torch.einsum("trgc,tgcd->trgd", gathered, matrices[slots])
    # spare places add to a row that is cut off
    places = torch.where(tile_out >= 0, tile_out, n_out).flatten().long()
    out = x.new_zeros(n_out + 1, groups * c_out)
    return out.index_add_(0, places, products.view(-1, groups * c_out))[:n_out]
