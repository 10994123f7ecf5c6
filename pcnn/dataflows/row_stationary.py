"""Output-stationary sums for maps whose slots hold several inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.outer_products import OuterProducts
from pcnn.dataflows.torch_sums import TorchSums, finish, kernels_serve, multiply
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.product_tiles import RowTiles


@dataclass(frozen=True)
class RowStationary(OuterProducts):
    """Every output row is summed where it is stored, over all inputs of all its slots.

    The counterpart of implicit GEMM for maps without a neighbour table. Native points put several
    inputs into a slot. So rows are ordered such that those of a tile fill the same slots as often
    (`pcnn.geometry.row_lists`), and tensor cores multiply one input of a slot after another. Slots
    of many inputs, as on dense clouds, are summed at the gather:
    ``sum_j x_j W_k = (sum_j x_j) W_k``. Any kernel map is served in one pass, without atomics and
    with identical bits in every run, and nothing is stored besides the result.

    Operands are rounded to the compute dtype, sums are float32; a sum at the gather is rounded to
    the compute dtype once more before it is multiplied, so in float16 it must stay below 65504.
    Kernels serve float16, bfloat16 and float32 on CUDA; elsewhere, and in float64, the same sums
    are plain torch.
    """

    tiles: RowTiles | None = None  # how the work is cut
    needs: tuple[str, ...] = ("row_lists",)
    fuses: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.tiles is not None and self.tiles.rows > TILE_ROWS:
            raise ValueError(f"tiles have at most {TILE_ROWS} rows, got {self.tiles.rows}")

    @property
    def name(self) -> str:
        """``row_stationary``, followed by tiles that are given."""
        return "row_stationary" + ("" if self.tiles is None else f"_{self.tiles.name}")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return self.by_kernels(x, w, layouts, n_out, spec)
        return finish(_in_torch(TorchSums.of(x, w, n_out, spec), layouts), spec)

    def by_kernels(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """`forward` by the Triton kernel: CUDA tensors, or any in Triton's interpreter."""
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.row_lists import launch_row_lists

        compute_type(spec.compute_dtype, self.name)
        return launch_row_lists(x, w, layouts, n_out, spec, self.tiles)


def _in_torch(plain: TorchSums, layouts: Sequence[Tensor]) -> Tensor:
    """The same sums in torch operations, slot by slot; waits for the device."""
    tile_out, tile_starts, *_, in_index = layouts
    rows, out = plain.rows, plain.sums
    fan_in = tile_starts[:, 1:] - tile_starts[:, :-1]  # [tiles, K, TILE_ROWS]
    slot, tile, place = (fan_in > 0).transpose(0, 1).nonzero(as_tuple=True)
    starts, fan_in = tile_starts[tile, slot, place], fan_in[tile, slot, place]
    summed = rows.new_zeros(len(slot), rows.shape[1])
    # rank by rank, so that inputs of one row are added in one order
    for rank in range(int(fan_in.max()) if len(fan_in) else 0):
        (still,) = (fan_in > rank).nonzero(as_tuple=True)
        inputs = in_index[(starts[still] + rank).long()]
        summed[still] += rows.index_select(0, inputs)
    sizes = torch.bincount(slot, minlength=len(plain.matrices)).tolist()
    targets = tile_out[tile, place].long().split(sizes)
    for matrix, part, target in zip(plain.matrices, summed.split(sizes), targets, strict=True):
        out.index_add_(0, target, multiply(part, matrix))
    return out
