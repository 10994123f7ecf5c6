"""Pairs by slot on tensor cores, added to the output by atomics: the weight-stationary dataflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.dataflows.gemm import OuterProducts
from pcnn.dataflows.torch_sums import TorchSums, finish, kernels_serve
from pcnn.kernels.conv_spec import ConvSpec
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
    """

    half: bool = True  # read one half of the pairs of a submanifold map
    tiles: ChunkTiles | None = None  # how the pairs are cut; None picks by shape (ChunkTiles.of)
    central_tiles: RowTiles | None = None  # the same of the central slot (RowTiles.of)
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
        return ("half_pairs",) if self.half else ("pairs", "counts")

    def forward(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        if kernels_serve(x, spec.compute_dtype):
            return self.by_kernels(x, w, layouts, n_out, spec)
        in_index, out_index, counts = layouts[0], layouts[1], layouts[-1]
        plain = TorchSums.of(x, w, n_out, spec)
        both = counts.shape[0] < w.shape[0]
        if both and w.shape[0] % 2:
            plain.add_centre()
        plain.add_pairs(in_index, out_index, counts, None, both)
        return finish(plain.sums, spec)

    def by_kernels(
        self, x: Tensor, w: Tensor, layouts: Sequence[Tensor], n_out: int, spec: ConvSpec
    ) -> Tensor:
        """`forward` by the Triton kernels: CUDA tensors, or any in Triton's interpreter."""
        from pcnn.kernels.dense_slots import write_dense
        from pcnn.kernels.epilogue import finish as finish_by_kernel
        from pcnn.kernels.gathered_product import compute_type
        from pcnn.kernels.weight_stationary import add_pairs

        compute_type(spec.compute_dtype, self.name)
        in_index, out_index, counts = layouts[0], layouts[1], layouts[-1]
        shape, x, w, spec = operands(x, w, spec)
        both = counts.shape[0] < shape.volume
        sums = x.new_zeros(n_out, shape.width, dtype=torch.float32)
        pairs = in_index, out_index, counts, None
        add_pairs(sums, x, w, *pairs, both, shape, spec, self.tiles)
        if not (both and shape.volume % 2):
            return finish_by_kernel(sums, spec.out_dtype, spec.epilogue)
        # the central slot last: it writes every row
        out = sums if spec.out_dtype == sums.dtype else torch.empty_like(sums, dtype=spec.out_dtype)
        write_dense(out, x, w, None, None, shape, spec, self.central_tiles, sums)
        return out


def operands(x: Tensor, w: Tensor, spec: ConvSpec) -> tuple[ProductShape, Tensor, Tensor, ConvSpec]:
    """Shape of a product, and its operands contiguous, as kernels read them."""
    shape = ProductShape.of(w, spec)
    if spec.skip is not None:
        spec = spec._replace(skip=spec.skip.contiguous())
    return shape, x.contiguous(), w.contiguous(), spec
