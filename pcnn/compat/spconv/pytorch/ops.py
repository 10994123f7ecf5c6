"""Numbers per axis, sizes of volumes, and the error of an argument that does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pcnn.geometry import Kernel

Size = int | Sequence[int]

#: Axes that a tensor may have.
MOST_AXES = 3


class SpconvError(ValueError, AssertionError):
    """A wrong argument; also an `AssertionError`, which spconv raises in its place."""


def require(fits: bool, message: str) -> None:
    """Raise a `SpconvError` with the message unless an argument fits."""
    if not fits:
        raise SpconvError(message)


def expand_nd(ndim: int, val: Any) -> list[int]:
    """One integer per axis, of one for all or of one each."""
    values = [int(val)] * ndim if isinstance(val, int) else [int(v) for v in val]
    require(len(values) == ndim, f"needs one integer or {ndim}, one per axis, got {val!r}")
    return values


def kernel_of(
    size: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> Kernel:
    """Kernel of a layer; axes that it does not have are one cell wide."""
    spare = MOST_AXES - len(size)
    ones, zeros = [1] * spare, [0] * spare
    return Kernel.of([*size, *ones], [*stride, *ones], [*dilation, *ones], [*padding, *zeros])


def get_conv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Spatial shape behind a convolution or pooling; a kernel of -1 covers the whole axis."""
    axes = zip(input_size, kernel_size, stride, padding, dilation, strict=True)
    return [1 if k == -1 else (n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes]


def get_deconv_output_size(
    input_size: Sequence[int],
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """Spatial shape behind a transposed convolution; as in spconv the dilation does not count."""
    require(min(kernel_size) >= 0, f"kernel_size must be positive, got {list(kernel_size)}")
    axes = zip(input_size, kernel_size, stride, padding, output_padding, strict=True)
    return [(n - 1) * s - 2 * p + k + more for n, k, s, p, more in axes]
