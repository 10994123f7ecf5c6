"""How a convolution and its norm are computed, apart from their operands and the map."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

#: Torch's own switch for products of float32 in TF32.
_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


class Epilogue(NamedTuple):
    """``relu(product * scale + shift + residual)``; absent parts are left out. Inference only."""

    scale: Tensor | None = None  # [C_out] float32, of a folded norm
    shift: Tensor | None = None  # [C_out] float32, of a folded norm or a bias
    residual: Tensor | None = None  # [N_out, C_out], added before the activation
    relu: bool = False  # whether ReLU follows

    def apply(self, product: Tensor) -> Tensor:
        """The same in separate operations, for dataflows that do not fuse it."""
        if self.scale is not None:
            product = product * self.scale
        if self.shift is not None:
            product = product + self.shift
        if self.residual is not None:
            product = product + self.residual.to(product.dtype)
        return nn.functional.relu(product) if self.relu else product


#: An epilogue without any part.
NO_EPILOGUE = Epilogue()


class ConvSpec(NamedTuple):
    """Everything a dataflow is told about a product besides tensors, layouts and rows."""

    groups: int = 1  # groups of channels; output channels are group-major
    transposed: bool = False  # multiply by the transpose of every W[k], read through its strides
    #: slot k of the layouts multiplies ``W[K - 1 - k]``, or fills it in a weight gradient: a
    #: symmetric map serves as its own transpose
    mirrored: bool = False
    compute_dtype: torch.dtype = torch.float32  # dtype that operands are rounded to
    out_dtype: torch.dtype = torch.float32  # dtype of the result
    #: applied to the sums before they are rounded; only where the dataflow fuses
    epilogue: Epilogue | None = None
    #: ``[N_in, C_2]``, channels that follow those of ``x`` (a skip connection, not copied); only
    #: where the dataflow fuses, at groups = 1 and not ``transposed``
    skip: Tensor | None = None
    #: ``[1]`` int32 on the device, the first rows of the output that are wanted, those behind them
    #: are undefined; ``None``: all rows. A dataflow may compute all the same.
    rows: Tensor | None = None


class RunningStatistics(NamedTuple):
    """Statistics over batches, updated in place as `torch.nn.BatchNorm1d` does."""

    mean: Tensor  # [C]
    variance: Tensor  # [C], unbiased
    batches: Tensor | None  # int64 number of batches, or None
    momentum: float | None  # share of the batch


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
