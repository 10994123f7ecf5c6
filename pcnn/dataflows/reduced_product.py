"""Products that sum over rows, as weight gradients do, by torch's own matrix multiplication."""

from __future__ import annotations

import torch
from torch import Tensor

from pcnn.dataflows.torch_sums import in_given_dtype

#: Most rows that one call sums over. cuBLAS of CUDA 13.0 loses rows of long sums on an H200. Of
#: float16 operands [64, 32017] x [32017, 64] those of about 17 rows were missing (32017 mod 64): an
#: RMS error of 4.06 at values of 181.8. Sums in float32 were right, and so were those of 19424 rows
#: and fewer.
PIECE_ROWS = 4096


def has_wide_products() -> bool:
    """True if torch multiplies half precision operands to float32 results (2.8 and later)."""
    return hasattr(torch.ops.aten.bmm, "dtype_out")


def reduced_product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """``left^T @ right``, summed over rows in pieces of `PIECE_ROWS`, whatever autocast says.

    Half precision operands are multiplied to float32 where torch does so, and are widened piece by
    piece elsewhere. Operands of ``dtype`` may need derivatives of any order.
    """
    count, rows = left.shape[:2]
    full = rows // PIECE_ROWS
    with in_given_dtype(left):
        if rows <= PIECE_ROWS:
            return _product(left, right, dtype)
        sides = left, right
        if count <= full:  # a call for every matrix, or else for every piece: what is fewer
            cut = [side[:, : full * PIECE_ROWS].unflatten(1, (full, PIECE_ROWS)) for side in sides]
            matrices = zip(*cut, strict=True)
            found = torch.stack([_product(a, b, dtype).sum(0) for a, b in matrices])
        else:
            pieces = zip(*(side.split(PIECE_ROWS, 1)[:full] for side in sides), strict=True)
            found = torch.stack([_product(a, b, dtype) for a, b in pieces]).sum(0)
        if full * PIECE_ROWS == rows:
            return found
        rest = left[:, full * PIECE_ROWS :], right[:, full * PIECE_ROWS :]
        return found + _product(*rest, dtype)


def _product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """``left^T @ right`` of ``[S, R, A]`` and ``[S, R, C]`` in one call; one matrix by ``mm``."""
    wide = [] if left.dtype == dtype else [dtype]
    if wide and not (left.is_cuda and has_wide_products()):
        left, right, wide = left.to(dtype), right.to(dtype), []
    if left.shape[0] == 1:
        return torch.mm(left[0].t(), right[0], *wide)[None]
    return torch.bmm(left.transpose(1, 2), right, *wide)
