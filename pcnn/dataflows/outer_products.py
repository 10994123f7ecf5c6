"""The gradient of the weights on tensor cores, for every dataflow that runs in Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pcnn.dataflows.reference import Reference, kernels_serve

if TYPE_CHECKING:
    from pcnn.kernels.outer_products import OuterProductTiles
    from pcnn.kernels.outer_products_by_row import ByRowTiles

#: Layouts that `vvor` reads, of the forward map.
NEEDS_VVOR = ("pairs", "counts")

#: Layouts that `vvor_by_row` reads.
NEEDS_VVOR_BY_ROW = ("table",)


def vvor(
    x: Tensor,
    grad: Tensor,
    layouts: Sequence[Tensor],
    groups: int,
    compute_dtype: torch.dtype,
    out_dtype: torch.dtype,
    *,
    mirrored: bool = False,
    tiles: OuterProductTiles | None = None,
) -> Tensor:
    """``out[k] = sum over the triplets (i, j, k) of x[j]^T grad[i]``, see `Dataflow.vvor`.

    Deterministic unless ``tiles`` ask for atomic additions.

    Args:
        x: ``[N_in, C_in]``.
        grad: ``[N_out, C_out]``.
        layouts: tensors of the layouts in `NEEDS_VVOR`, one after another.
        groups: groups of channels.
        compute_dtype: float16, bfloat16 or float32; sums are float32.
        out_dtype: dtype of the result.
        mirrored: slot k of the layouts fills ``out[K - 1 - k]``.
        tiles: how the kernel cuts the work; by default from the sizes.

    Returns:
        ``[K, C_in / groups, C_out]``.

    Raises:
        ValueError: another ``compute_dtype``.
    """
    from pcnn.kernels.outer_products import outer_products

    in_index, out_index, _, counts = layouts
    dtypes = (compute_dtype, out_dtype)
    return outer_products(
        x, grad, in_index, out_index, counts, groups, *dtypes, mirrored=mirrored, tiles=tiles
    )


def vvor_by_row(
    x: Tensor,
    grad: Tensor,
    layouts: Sequence[Tensor],
    groups: int,
    compute_dtype: torch.dtype,
    out_dtype: torch.dtype,
    *,
    mirrored: bool = False,
    tiles: ByRowTiles | None = None,
) -> Tensor:
    """The same from the neighbour table, for maps with most slots filled; deterministic.

    Args:
        x: ``[N_in, C_in]``.
        grad: ``[N_out, C_out]``, finite.
        layouts: tensors of the layouts in `NEEDS_VVOR_BY_ROW`.
        groups: groups of channels.
        compute_dtype: float16, bfloat16 or float32; sums are float32.
        out_dtype: dtype of the result.
        mirrored: slot k of the layouts fills ``out[K - 1 - k]``.
        tiles: how the kernel cuts the work; by default from the sizes.

    Returns:
        ``[K, C_in / groups, C_out]``.

    Raises:
        ValueError: another ``compute_dtype``.
    """
    from pcnn.kernels.outer_products_by_row import outer_products_by_row

    dtypes = (compute_dtype, out_dtype)
    return outer_products_by_row(
        x, grad, layouts[0], groups, *dtypes, mirrored=mirrored, tiles=tiles
    )


class OuterProducts:
    """The `vvor` of dataflows whose `needs_vvor` is `NEEDS_VVOR`."""

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
        dtypes = compute_dtype, out_dtype
        if kernels_serve(x, compute_dtype):
            return vvor(x, grad, layouts, groups, *dtypes, mirrored=mirrored)
        return Reference().vvor(x, grad, layouts[:3], groups, *dtypes, mirrored=mirrored)
