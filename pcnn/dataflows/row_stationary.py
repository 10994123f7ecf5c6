"""Output-stationary sums over lists of inputs, for maps whose slots hold several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.listed_pairs import PlainSums
from pcnn.dataflows.outer_products import NEEDS_VVOR, OuterProducts
from pcnn.dataflows.reference import finish, kernels_serve, multiply
from pcnn.geometry.layouts import TILE_ROWS
from pcnn.kernels.product_tiles import ProductShape, RowTiles


@dataclass(frozen=True)
class RowStationary(OuterProducts):
    """Inputs of a slot are summed while they are gathered, and multiplied once.

    ``sum_j x_j W_k = (sum_j x_j) W_k``: where native points put up to 8 inputs into a slot, rows
    are neither padded to the fullest of a tile nor added by atomics. Any kernel map is served, in
    one pass and with identical bits in every run.

    Inputs are rounded to the compute dtype, summed in float32, and the sum of a slot is rounded to
    the compute dtype once more before it is multiplied: in float16 that sum must stay below 65504.
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
        from pcnn.kernels.gathered_product import compute_type, precision_of
        from pcnn.kernels.row_lists import launch_row_lists

        follows = epilogue or Epilogue()
        shape = ProductShape.of(weight, groups, transposed, mirrored, second)
        return launch_row_lists(
            x,
            weight,
            layouts,
            n_out,
            shape,
            compute_type(compute_dtype, self.name),
            precision_of(compute_dtype),
            self.tiles or tiles_of(shape, compute_dtype),
            out_dtype,
            second,
            follows.scale,
            follows.shift,
            follows.residual,
            follows.relu,
        )


def tiles_of(shape: ProductShape, compute_dtype: torch.dtype) -> RowTiles:
    """Tiles without measuring: 64 rows, whose gathers and sums leave registers for a neighbour.

    Sums at the gather wait for memory; four programs of 128 registers a multiprocessor hide that
    better than one of 128 rows. The rest is as for every output-stationary product.

    Args:
        shape: of the product.
        compute_dtype: dtype of the operands.
    """
    columns, depth = shape.block(compute_dtype)
    return RowTiles(64, columns, depth)


def _plain(plain: PlainSums, layouts: Sequence[Tensor]) -> Tensor:
    """The same sums in torch operations, slot by slot; waits for the device."""
    tile_out, tile_slots, tile_counts, _, tile_starts, in_index = layouts
    rows, matrices, out = plain.rows, plain.matrices, plain.sums
    volume = matrices.shape[0]
    fan_in = tile_starts[:, 1:] - tile_starts[:, :-1]  # [tiles, K, TILE_ROWS]
    columns = torch.arange(volume, device=fan_in.device)
    slots = torch.where(columns < tile_counts[:, None], tile_slots, volume).long()
    tile, column, place = (fan_in > 0).nonzero(as_tuple=True)
    slot = slots[tile, column]
    order = torch.argsort(slot, stable=True)
    tile, column, place = tile[order], column[order], place[order]
    starts, fan_in = tile_starts[tile, column, place], fan_in[tile, column, place]
    summed = rows.new_zeros(len(order), rows.shape[1])
    # rank by rank, so that inputs of one row are added in one order
    for rank in range(int(fan_in.max()) if len(fan_in) else 0):
        (still,) = (fan_in > rank).nonzero(as_tuple=True)
        inputs = in_index[(starts[still] + rank).long()]
        summed[still] += rows.index_select(0, inputs)
    sizes = torch.bincount(slot, minlength=volume).tolist()
    targets = tile_out[tile, place].long().split(sizes)
    for matrix, part, target in zip(matrices, summed.split(sizes), targets, strict=True):
        out.index_add_(0, target, multiply(part, matrix))
    return out
