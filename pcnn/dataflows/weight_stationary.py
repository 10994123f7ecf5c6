"""Pairs by slot on tensor cores, added to the output by atomics: the weight-stationary dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.kernels.product_tiles import ChunkTiles, ProductShape, RowTiles


@dataclass(frozen=True)
class WeightStationary:
    """Programs keep to one slot's weight and multiply chunks of its pairs.

    Every pair is multiplied and nothing else is: no row is padded, which serves kernels of many
    sparse slots and maps whose slots hold several inputs. The price is one float32 atomic addition
    per pair and output channel. It is the fetch-on-demand dataflow of TorchSparse++, the
    weight-stationary one of Spira (section 5.4), and what the code of PointCNN++ runs.

    Sums are float32, added in an order that differs from run to run: two runs do not give identical
    bits. Needs CUDA (or Triton's interpreter); multiplies float16, bfloat16 and float32.

    Args:
        half: read one half of the pairs of a submanifold map; its central slot, where every row
            meets itself, is a plain product that also initialises the sums. Every other map is
            read whole, and so are all of them without it.
        tiles: how the pairs are cut; ``None`` picks by shape (`ChunkTiles.of`).
        central_tiles: the same of the central slot (`RowTiles.of`).
    """

    half: bool = True
    tiles: ChunkTiles | None = None
    central_tiles: RowTiles | None = None
    needs_vvor: tuple[str, ...] = ("pairs", "counts")
    fuses: bool = True
    deterministic: bool = False

    @property
    def name(self) -> str:
        """``weight_stationary``, followed by settings that are not the usual ones."""
        words = ["weight_stationary"]
        words += [] if self.half else ["whole"]
        words += [tiles.name for tiles in (self.tiles,) if tiles is not None]
        words += [f"central_{tiles.name}" for tiles in (self.central_tiles,) if tiles is not None]
        return "_".join(words)

    @property
    def needs(self) -> tuple[str, ...]:
        """See `Dataflow.needs`."""
        return ("half_pairs",) if self.half else ("pairs", "counts")

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
        """See `Dataflow.mvmr`.

        Raises:
            ValueError: a compute dtype that tensor cores do not multiply.
        """
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.finished_sums import finish
        from pcnn.kernels.gathered_product import compute_type, precision_of
        from pcnn.kernels.weight_stationary import add_pairs

        in_index, out_index, counts = layouts[0], layouts[1], layouts[-1]
        compute = compute_type(compute_dtype, self.name), precision_of(compute_dtype)
        shape = ProductShape.of(weight, groups, transposed, mirrored, second)
        x, weight = x.contiguous(), weight.contiguous()
        second = None if second is None else second.contiguous()
        both = counts.shape[0] < shape.volume
        if both and shape.volume % 2:  # the central slot writes every row: nothing to clear
            sums = x.new_empty(n_out, shape.width, dtype=torch.float32)
            rows = self.central_tiles or RowTiles.of(shape, n_out, compute_dtype)
            write_dense(sums, x, weight, None, None, shape, *compute, rows, second)
        else:
            sums = x.new_zeros(n_out, shape.width, dtype=torch.float32)
        tiles = self.tiles or ChunkTiles.of(shape, (1 + both) * in_index.shape[0], compute_dtype)
        pairs = in_index, out_index, counts, None
        add_pairs(sums, x, weight, *pairs, both, shape, *compute, tiles, second)
        return finish(sums, out_dtype, *steps_of(epilogue))

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
        from pcnn.kernels.outer_products import outer_products

        in_index, out_index, _, counts = layouts
        dtypes = compute_dtype, out_dtype
        return outer_products(
            x, grad, in_index, out_index, counts, groups, *dtypes, mirrored=mirrored
        )


def steps_of(epilogue: Epilogue | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, bool]:
    """Scale, shift, residual and ReLU of an epilogue, as kernels take them."""
    if epilogue is None:
        return None, None, None, False
    return epilogue.scale, epilogue.shift, epilogue.residual, epilogue.relu
