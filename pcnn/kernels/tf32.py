"""Torch's own switch for products of float32 in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


def tf32_allowed() -> bool:
    """True if matrix products of float32 may round their operands to TF32 on CUDA devices.

    torch has an older switch, ``torch.backends.cuda.matmul.allow_tf32``, and since 2.9 a newer one,
    ``torch.backends.cuda.matmul.fp32_precision``. The newer one follows the older; the older cannot
    be read once the newer was set. Every layer asks, so the answer takes no attribute chains.
    """
    if _precision is None:  # torch before 2.9
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return bool(_precision("cuda", "matmul") == "tf32")


@contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 products for the time of a ``with`` block."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
