"""Near slots by output row, far ones by pairs: Spira's adaptive hybrid dataflow (section 5.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pcnn.dataflows.gemm import OuterProducts
from pcnn.dataflows.torch_sums import TorchSums, finish, kernels_serve
from pcnn.dataflows.weight_stationary import WeightStationary, operands
from pcnn.geometry.slot_subsets import USUAL
from pcnn.kernels.conv_spec import ConvSpec
from pcnn.kernels.product_tiles import ChunkTiles, RowTiles


@dataclass(frozen=True)
class Hybrid(OuterProducts):
    """Slots of small L1 norm output-stationary, the others weight-stationary.

    The offsets of a kernel are filled the less often the farther they reach. Near slots are worth a
    place in every row's table, and their sums are written once, without atomics; far ones are
    listed as pairs, and added to float32 sums before that. Of a submanifold map half of the far
    slots' pairs are read.

    Where one of the two has no slot, only the other runs: at threshold 0 the `WeightStationary`
    flow; beyond the largest norm every slot is dense, and the result is written directly. Otherwise
    two runs do not give identical bits. Kernels serve float16, bfloat16 and float32 on CUDA;
    elsewhere, and in float64, the same sums are plain torch.
    """

    threshold: int | None = None  # Spira's t: slots of a smaller L1 norm are dense
    tiles: ChunkTiles | None = None  # how the pairs are cut; None picks by shape (ChunkTiles.of)
    dense_tiles: RowTiles | None = None  # the same of the dense slots (RowTiles.of)
    fuses: bool = True
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and self.threshold < 0:
            raise ValueError(f"threshold must be at least 0, got {self.threshold}")

    @cached_property
    def name(self) -> str:
        """``hybrid_<threshold>`` or ``hybrid_usual``, then settings that are not the usual ones."""
        words = [f"hybrid_{self._setting}"]
        words += [tiles.name for tiles in (self.tiles,) if tiles is not None]
        words += [f"dense_{tiles.name}" for tiles in (self.dense_tiles,) if tiles is not None]
        return "_".join(words)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        return self._sparse.needs if self.threshold == 0 else (self.product,)

    @property
    def product(self) -> str:
        """Name of the layout that is split at the threshold."""
        return f"hybrid:{self._setting}"

    @property
    def _setting(self) -> str:
        """Of the layout's name."""
        return USUAL if self.threshold is None else str(self.threshold)

    @property
    def _sparse(self) -> WeightStationary:
        """Serves maps whose slots are all sparse, and the gradients of the weights."""
        return WeightStationary(tiles=self.tiles, central_tiles=self.dense_tiles)

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if self.threshold == 0:
            return self._sparse.forward(x, w, layouts, n_out, spec)
        if kernels_serve(x, spec.compute_dtype):
            return self.by_kernels(x, w, layouts, n_out, spec)
        table, dense, in_index, out_index, counts, sparse = layouts
        plain = TorchSums.of(x, w, n_out, spec)
        plain.add_table(table, dense)
        both = dense.shape[0] + sparse.shape[0] < w.shape[0]
        plain.add_pairs(in_index, out_index, counts, sparse, both)
        return finish(plain.sums, spec)

    def by_kernels(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """`forward` by the Triton kernels: CUDA tensors, or any in Triton's interpreter."""
        if self.threshold == 0:
            return self._sparse.by_kernels(x, w, layouts, n_out, spec)
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.weight_stationary import add_pairs

        compute_type(spec.compute_dtype, self.name)
        table, dense, in_index, out_index, counts, sparse = layouts
        shape, x, w, spec = operands(x, w, spec)
        if not sparse.shape[0]:
            out = x.new_empty(n_out, shape.width, dtype=spec.out_dtype)
            write_dense(out, x, w, table, dense, shape, spec, self.dense_tiles)
            return out
        far = x.new_zeros(n_out, shape.width, dtype=torch.float32)
        both = dense.shape[0] + sparse.shape[0] < shape.volume  # half of the sparse slots is listed
        pairs = in_index, out_index, counts, sparse
        add_pairs(far, x, w, *pairs, both, shape, spec, self.tiles)
        # the far slots first: what follows the sums then takes no pass of its own
        out = far if spec.out_dtype == far.dtype else torch.empty_like(far, dtype=spec.out_dtype)
        write_dense(out, x, w, table, dense, shape, spec, self.dense_tiles, far)
        return out
