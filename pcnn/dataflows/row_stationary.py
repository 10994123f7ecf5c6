"""Output-stationary sums for maps whose slots hold several inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.listed_pairs import PlainSums
from pcnn.dataflows.outer_products import NEEDS_VVOR, OuterProducts
from pcnn.dataflows.reference import finish, kernels_serve, multiply
from pcnn.geometry.slot_tiles import TILE_ROWS
from pcnn.kernels.gemm_blocks import default_blocks
from pcnn.kernels.product_tiles import ProductShape, RowTiles
from pcnn.kernels.tf32 import tf32_allowed

_NOTHING = Epilogue()


@dataclass(frozen=True)
class RowStationary(OuterProducts):
    """Every output row is summed where it is stored, over all inputs of all its slots.

    What implicit GEMM is to neighbour tables: where native points put several inputs into a slot,
    rows are ordered so that those of a tile fill the same slots as often
    (`pcnn.geometry.row_lists`), and tensor cores multiply one input of a slot after another. Slots
    of many inputs, as on dense clouds, are summed at the gather: ``sum_j x_j W_k = (sum_j x_j)
    W_k``. Any kernel map is served in one pass, without atomics and with identical bits in every
    run, and nothing is stored besides the result.

    Operands are rounded to the compute dtype, sums are float32; a sum at the gather is rounded to
    the compute dtype once more before it is multiplied, so in float16 it must stay below 65504.
    Kernels serve float16, bfloat16 and float32 on CUDA; elsewhere, and in float64, the same sums
    are plain torch.

    Args:
        tiles: how the work is cut; ``None`` picks by shape (`tiles_of`).

    Raises:
        ValueError: tiles of more rows than the layout's.
    """

    tiles: RowTiles | None = None
    needs: tuple[str, ...] = ("row_lists",)
    needs_vvor: tuple[str, ...] = NEEDS_VVOR
    fuses: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.tiles is not None and self.tiles.rows > TILE_ROWS:
            raise ValueError(f"tiles have at most {TILE_ROWS} rows, got {self.tiles.rows}")

    @property
    def name(self) -> str:
        """``row_stationary``, followed by tiles that are given."""
        return "row_stationary" + ("" if self.tiles is None else f"_{self.tiles.name}")

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
        if kernels_serve(x, compute_dtype):
            return self.by_kernels(
                x,
                weight,
                layouts,
                n_out,
                groups,
                transposed,
                compute_dtype,
                out_dtype,
                mirrored=mirrored,
                second=second,
                epilogue=epilogue,
            )
        reading = groups, transposed, mirrored
        plain = PlainSums.of(x, second, weight, n_out, *reading, compute_dtype)
        return finish(_plain(plain, layouts), epilogue, out_dtype)

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
        second: Tensor | None = None,
        epilogue: Epilogue | None = None,
    ) -> Tensor:
        """`mvmr` by the Triton kernel: CUDA tensors, or any in Triton's interpreter.

        Raises:
            ValueError: a compute dtype that tensor cores do not multiply.
        """
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.row_lists import launch_row_lists

        compute_type(compute_dtype, self.name)
        follows = epilogue or _NOTHING
        shape = ProductShape.of(weight, groups, transposed, mirrored, second)
        return launch_row_lists(
            x,
            weight,
            layouts,
            n_out,
            shape,
            compute_dtype,
            self.tiles or tiles_of(shape, layouts[0].shape[0], compute_dtype),
            out_dtype,
            second,
            follows.scale,
            follows.shift,
            follows.residual,
            follows.relu,
        )


def tiles_of(shape: ProductShape, tiles: int, compute_dtype: torch.dtype) -> RowTiles:
    """Cut without measuring: that of an implicit GEMM, whose steps are those of a tile.

    Args:
        shape: of the product.
        tiles: of `TILE_ROWS` output rows.
        compute_dtype: dtype of the operands.
    """
    exact = compute_dtype == torch.float32 and not tf32_allowed()
    wide = shape.packed()
    sizes = wide.channels, wide.outputs, tiles, shape.volume
    blocks = default_blocks(*sizes, compute_dtype, exact)
    sides = blocks.rows, blocks.channels_out, blocks.channels_in
    return RowTiles(*sides, blocks.warps, blocks.stages)


def _plain(plain: PlainSums, layouts: Sequence[Tensor]) -> Tensor:
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
