"""Near slots by output row, far ones by pairs: Spira's adaptive hybrid dataflow (section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.epilogue import Epilogue
from pcnn.dataflows.listed_pairs import PlainSums
from pcnn.dataflows.outer_products import NEEDS_VVOR, OuterProducts
from pcnn.dataflows.reference import finish, kernels_serve
from pcnn.dataflows.weight_stationary import WeightStationary, steps_of
from pcnn.kernels.product_tiles import ChunkTiles, ProductShape, RowTiles


@dataclass(frozen=True)
class Hybrid(OuterProducts):
    """Slots of small L1 norm output-stationary, the others weight-stationary.

    The offsets of a kernel are filled the less often the farther they reach. Near slots are worth a
    place in every row's table, and their sums are written once, without atomics; far ones are
    listed as pairs, and added to the same float32 sums. Of a submanifold map half of the far
    slots' pairs are read.

    Where one of the two has no slot, only the other runs: at threshold 0 the `WeightStationary`
    flow; beyond the largest norm every slot is dense, and the result is written directly. Otherwise
    two runs do not give identical bits. Kernels serve float16, bfloat16 and float32 on CUDA;
    elsewhere, and in float64, the same sums are plain torch.

    Args:
        threshold: Spira's t: slots of a smaller L1 norm are dense; the norm is in units of the
            input's voxels.
        tiles: how the pairs are cut; ``None`` picks by shape (`ChunkTiles.of`).
        dense_tiles: the same of the dense slots (`RowTiles.of`).

    Raises:
        ValueError: a negative threshold.
    """

    threshold: int
    tiles: ChunkTiles | None = None
    dense_tiles: RowTiles | None = None
    needs_vvor: tuple[str, ...] = NEEDS_VVOR
    fuses: bool = True
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise ValueError(f"threshold must be at least 0, got {self.threshold}")

    @property
    def name(self) -> str:
        """``hybrid_<threshold>``, followed by settings that are not the usual ones."""
        words = [f"hybrid_{self.threshold}"]
        words += [tiles.name for tiles in (self.tiles,) if tiles is not None]
        words += [f"dense_{tiles.name}" for tiles in (self.dense_tiles,) if tiles is not None]
        return "_".join(words)

    @property
    def needs(self) -> tuple[str, ...]:
        """See `Dataflow.needs`."""
        return (f"hybrid:{self.threshold}",) if self.threshold else self._sparse.needs

    @property
    def _sparse(self) -> WeightStationary:
        """What serves when every slot is sparse, and the gradients of the weights."""
        return WeightStationary(tiles=self.tiles, central_tiles=self.dense_tiles)

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
        if not self.threshold:
            return self._sparse.mvmr(
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
        table, dense, in_index, out_index, counts, sparse = layouts
        reading = groups, transposed, mirrored
        plain = PlainSums.of(x, second, weight, n_out, *reading, compute_dtype)
        plain.add_table(table, dense)
        both = dense.shape[0] + sparse.shape[0] < weight.shape[0]
        plain.add_pairs(in_index, out_index, counts, sparse, both)
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
        if not self.threshold:
            return self._sparse.by_kernels(
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
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.finished_sums import finish as finish_by_kernel
        from pcnn.kernels.gathered_product import compute_type, precision_of
        from pcnn.kernels.weight_stationary import add_pairs

        table, dense, in_index, out_index, counts, sparse = layouts
        compute = compute_type(compute_dtype, self.name), precision_of(compute_dtype)
        shape = ProductShape.of(weight, groups, transposed, mirrored, second)
        x, weight = x.contiguous(), weight.contiguous()
        second = None if second is None else second.contiguous()
        rows = self.dense_tiles or RowTiles.of(shape, n_out, compute_dtype)
        arguments = x, weight, table, dense, shape, *compute, rows, second
        if not sparse.shape[0]:
            out = x.new_empty(n_out, shape.width, dtype=out_dtype)
            write_dense(out, *arguments, *steps_of(epilogue))
            return out
        sums = x.new_empty(n_out, shape.width, dtype=torch.float32)
        write_dense(sums, *arguments)
        both = dense.shape[0] + sparse.shape[0] < shape.volume  # half of the sparse slots is listed
        tiles = self.tiles or ChunkTiles.of(
            shape.packed(), (1 + both) * in_index.shape[0], compute_dtype
        )
        pairs = in_index, out_index, counts, sparse
        add_pairs(sums, x, weight, *pairs, both, shape, *compute, tiles, second)
        return finish_by_kernel(sums, out_dtype, *steps_of(epilogue))
