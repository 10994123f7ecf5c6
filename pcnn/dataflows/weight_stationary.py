"""Pairs by slot on tensor cores, added to the output by atomics: the weight-stationary dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.listed_pairs import PlainSums
from pcnn.dataflows.outer_products import NEEDS_VVOR, OuterProducts
from pcnn.dataflows.reference import finish, kernels_serve
from pcnn.kernels.product_tiles import ChunkTiles, ProductShape, RowTiles


@dataclass(frozen=True)
class WeightStationary(OuterProducts):
    """Programs keep to one slot's weight and multiply chunks of its pairs.

    Every pair is multiplied and nothing else is: no row is padded, which serves kernels of many
    sparse slots and maps whose slots hold several inputs. The price is one float32 atomic addition
    per pair and output channel. It is the fetch-on-demand dataflow of TorchSparse++, the
    weight-stationary one of Spira (section 5.4), and what the code of PointCNN++ runs.

    Sums are float32, added in an order that differs from run to run: two runs do not give identical
    bits. Kernels serve float16, bfloat16 and float32 on CUDA; elsewhere, and in float64, the same
    sums are plain torch.

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
    needs_vvor: tuple[str, ...] = NEEDS_VVOR
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
        in_index, out_index, counts = layouts[0], layouts[1], layouts[-1]
        reading = groups, transposed, mirrored
        plain = PlainSums.of(x, second, weight, n_out, *reading, compute_dtype)
        both = counts.shape[0] < weight.shape[0]
        if both and weight.shape[0] % 2:
            plain.add_centre()
        plain.add_pairs(in_index, out_index, counts, None, both)
        return finish(plain.sums, epilogue, out_dtype)

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
        """`mvmr` by the Triton kernels: CUDA tensors, or any in Triton's interpreter.

        Raises:
            ValueError: a compute dtype that tensor cores do not multiply.
        """
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.finished_sums import finish as finish_by_kernel
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
        pairs_read = (1 + both) * in_index.shape[0]
        tiles = self.tiles or ChunkTiles.of(shape.packed(), pairs_read, compute_dtype)
        pairs = in_index, out_index, counts, None
        add_pairs(sums, x, weight, *pairs, both, shape, *compute, tiles, second)
        return finish_by_kernel(sums, out_dtype, *steps_of(epilogue))


def steps_of(epilogue: Epilogue | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, bool]:
    """Scale, shift, residual and ReLU of an epilogue, as kernels take them."""
    if epilogue is None:
        return None, None, None, False
    return epilogue.scale, epilogue.shift, epilogue.residual, epilogue.relu
