"""Batch norm of given statistics with a residual and ReLU, and its gradients.

    out = relu(xhat * weight + bias + residual)      xhat = (y - mean) * invstd

    g = grad where out > 0                           gradient of the residual
    grad_bias = sum of g                             over the rows
    grad_weight = sum of g * xhat
    grad_y = weight * invstd * (g - (grad_bias + xhat * grad_weight) / N)

(Ioffe & Szegedy 2015). Without a residual, where ReLU let through is computed again from ``y``, so
that backward reads, and keeps, one matrix less. Sums are added in a fixed order and without
atomics, so two runs give identical bits. Rows from a count on the device on are not read, and zero
in every result.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.batch_statistics import COLUMNS, PARTS, RowChunks, row_chunks, rows_there
from pcnn.kernels.triton_launch import TritonLauncher, Variant


@triton.jit  # type: ignore[untyped-decorator]
def parameters(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    statistics_ptr, weight_ptr, bias_ptr, columns, inside, CHANNELS: tl.constexpr
):
    """Mean, ``invstd``, weight and bias of some channels, ``[1, COLUMNS]`` float32 each."""
    mean = tl.load(statistics_ptr + columns, mask=inside, other=0.0)
    invstd = tl.load(statistics_ptr + CHANNELS + columns, mask=inside, other=0.0)
    weight, bias = tl.full(mean.shape, 1.0, tl.float32), tl.zeros(mean.shape, tl.float32)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    return mean[None, :], invstd[None, :], weight[None, :], bias[None, :]


@triton.jit  # type: ignore[untyped-decorator]
def block_of_program(  # type: ignore[no-untyped-def]
    rows,
    count_ptr,  # [1] int32 or None
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """The block of rows and columns that a program maps."""
    # from the end: what was read last lies in the cache
    row_block = tl.num_programs(0) // BLOCKS - 1 - tl.program_id(0) // BLOCKS
    numbers = row_block.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < CHANNELS
    number = rows_there(rows, count_ptr)
    there = (numbers < number)[:, None] & inside[None, :]
    written = (numbers < rows)[:, None] & inside[None, :]
    places = numbers[:, None] * CHANNELS + columns[None, :]
    return columns, inside, places, there, written, number


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows"], do_not_specialize_on_alignment=["count_ptr"]
)
def batch_norm_kernel(  # type: ignore[no-untyped-def]
    y_ptr,  # [rows, CHANNELS]
    out_ptr,  # [rows, CHANNELS]
    statistics_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,  # [rows, CHANNELS] or None
    count_ptr,  # [1] int32 or None
    rows,
    CHANNELS: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A block of rows and columns."""
    columns, inside, places, there, written, _ = block_of_program(
        rows, count_ptr, CHANNELS, ROWS, COLUMNS, BLOCKS
    )
    values = tl.load(y_ptr + places, mask=there, other=0.0).to(tl.float32)
    mean, invstd, weight, bias = parameters(
        statistics_ptr, weight_ptr, bias_ptr, columns, inside, CHANNELS
    )
    out = (values - mean) * invstd * weight + bias
    if residual_ptr is not None:
        out += tl.load(residual_ptr + places, mask=there, other=0.0).to(tl.float32)
    if RELU:
        out = tl.where(out < 0, 0.0, out)  # as torch's ReLU, NaN stays
    out = tl.where(there, out, 0.0)
    tl.store(out_ptr + places, out.to(out_ptr.dtype.element_ty), mask=written)


@triton.jit  # type: ignore[untyped-decorator]
def rectified(  # type: ignore[no-untyped-def]
    grad_ptr, out_ptr, affine, places, there, RELU: tl.constexpr
):
    """Gradient before ReLU: zero where the output, or what made it, is not positive."""
    grad = tl.load(grad_ptr + places, mask=there, other=0.0).to(tl.float32)
    if RELU:
        if out_ptr is not None:
            affine = tl.load(out_ptr + places, mask=there, other=0.0).to(tl.float32)
        grad = tl.where(affine <= 0, 0.0, grad)  # as torch's ReLU, that of NaN stays
    return grad


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "programs"], do_not_specialize_on_alignment=["count_ptr"]
)
def partial_sums_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,  # [rows, CHANNELS]
    y_ptr,  # [rows, CHANNELS]
    out_ptr,  # [rows, CHANNELS] or None
    statistics_ptr,
    weight_ptr,
    bias_ptr,
    partials_ptr,  # [2, programs, CHANNELS] float32: sums of g, and of g * xhat
    count_ptr,
    rows,
    programs,
    CHANNELS: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A share of the rows of one block of columns."""
    program, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    there = rows_there(rows, count_ptr)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < CHANNELS
    mean, invstd, weight, bias = parameters(
        statistics_ptr, weight_ptr, bias_ptr, columns, inside, CHANNELS
    )
    lanes = tl.arange(0, ROWS)
    sums = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    products = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in tl.range(program.to(tl.int64) * ROWS, there, programs * ROWS, num_stages=3):
        numbers = start + lanes
        mask = (numbers < there)[:, None] & inside[None, :]
        places = numbers[:, None] * CHANNELS + columns[None, :]
        values = tl.load(y_ptr + places, mask=mask, other=0.0).to(tl.float32)
        xhat = (values - mean) * invstd
        grad = rectified(grad_ptr, out_ptr, xhat * weight + bias, places, mask, RELU)
        sums += grad
        products += grad * xhat
    targets = partials_ptr + program.to(tl.int64) * CHANNELS + columns
    tl.store(targets, tl.sum(sums, 0), mask=inside)
    tl.store(targets + programs.to(tl.int64) * CHANNELS, tl.sum(products, 0), mask=inside)


@triton.jit(do_not_specialize=["programs", "channels"])  # type: ignore[untyped-decorator]
def sums_kernel(  # type: ignore[no-untyped-def]
    partials_ptr,  # [2, programs, C] float32
    sums_ptr,  # [C] float32
    products_ptr,  # [C] float32
    programs,
    channels,
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some channels of one of the two sums."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < channels
    parts = tl.arange(0, PARTS)
    mask = (parts < programs)[:, None] & inside[None, :]
    places = (tl.program_id(1) * programs + parts)[:, None] * channels + columns[None, :]
    sums = tl.load(partials_ptr + places, mask=mask, other=0.0)
    target = sums_ptr if tl.program_id(1) == 0 else products_ptr
    tl.store(target + columns, tl.sum(sums, 0), mask=inside)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows"], do_not_specialize_on_alignment=["count_ptr"]
)
def gradient_kernel(  # type: ignore[no-untyped-def]
    grad_ptr,  # [rows, CHANNELS]
    y_ptr,  # [rows, CHANNELS]
    out_ptr,  # [rows, CHANNELS] or None
    statistics_ptr,
    weight_ptr,
    bias_ptr,
    sums_ptr,  # [CHANNELS] float32
    products_ptr,  # [CHANNELS] float32
    grad_y_ptr,  # [rows, CHANNELS]
    grad_residual_ptr,  # [rows, CHANNELS] or None
    count_ptr,
    rows,
    CHANNELS: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A block of rows and columns."""
    columns, inside, places, there, written, number = block_of_program(
        rows, count_ptr, CHANNELS, ROWS, COLUMNS, BLOCKS
    )
    values = tl.load(y_ptr + places, mask=there, other=0.0).to(tl.float32)
    mean, invstd, weight, bias = parameters(
        statistics_ptr, weight_ptr, bias_ptr, columns, inside, CHANNELS
    )
    xhat = (values - mean) * invstd
    grad = rectified(grad_ptr, out_ptr, xhat * weight + bias, places, there, RELU)
    if grad_residual_ptr is not None:
        kind = grad_residual_ptr.dtype.element_ty
        tl.store(grad_residual_ptr + places, grad.to(kind), mask=written)
    sums = tl.load(sums_ptr + columns, mask=inside, other=0.0)[None, :]
    products = tl.load(products_ptr + columns, mask=inside, other=0.0)[None, :]
    # fewer than two rows had statistics that do not depend on them
    share = tl.where(number > 1, 1.0 / tl.maximum(number, 1).to(tl.float32), 0.0)
    grad_y = invstd * weight * (grad - (sums + xhat * products) * share)
    grad_y = tl.where(there, grad_y, 0.0)
    tl.store(grad_y_ptr + places, grad_y.to(grad_y_ptr.dtype.element_ty), mask=written)


def batch_norm(
    y: Tensor,  # [N, C], N and C at least 1, contiguous
    statistics: Tensor,  # [2, C] of batch_statistics
    weight: Tensor | None,  # [C]
    bias: Tensor | None,  # [C]
    residual: Tensor | None = None,  # [N, C]
    relu: bool = False,
    count: Tensor | None = None,  # [1] int32 on the same device: rows from there on are not read
) -> Tensor:
    """``relu(xhat * weight + bias + residual)`` in one pass; absent parts are left out."""
    rows, channels = y.shape
    cut, norm, _, _ = _kernels(channels, relu)
    out = torch.empty_like(y)
    residual = None if residual is None else residual.contiguous()
    grid = cut.programs(rows)[0] * cut.blocks, 1
    norm(grid, (y, out, statistics, weight, bias, residual, count), (rows,))
    return out


def batch_norm_gradients(
    grad: Tensor,  # [N, C], gradient of its result
    y: Tensor,
    out: Tensor | None,
    statistics: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    relu: bool = False,
    residual: bool = False,
    count: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Gradients of `batch_norm`, through the statistics of the batch too."""
    rows, channels = y.shape
    device, wide = y.device, torch.float32
    cut, _, partial, gradient = _kernels(channels, relu)
    mapped, reduced = cut.programs(rows)
    grad = grad.contiguous()
    partials = torch.empty((2, reduced, channels), dtype=wide, device=device)
    sums = torch.empty(channels, dtype=wide, device=device)
    products = torch.empty(channels, dtype=wide, device=device)
    grad_y = torch.empty_like(y)
    # without ReLU and rows to clear it is the gradient itself
    same = residual and not relu and count is None
    grad_residual = torch.empty_like(grad) if residual and not same else None
    given = grad, y, out, statistics, weight, bias
    partial((reduced * cut.blocks, 1), (*given, partials, count), (rows, reduced))
    _ADD((-(-channels // COLUMNS), 2), (partials, sums, products), (reduced, channels))
    results = sums, products, grad_y, grad_residual
    gradient((mapped * cut.blocks, 1), (*given, *results, count), (rows,))
    return grad_y, grad if same else grad_residual, products, sums


@functools.lru_cache(maxsize=4096)
def _kernels(channels: int, relu: bool) -> tuple[RowChunks, Variant, Variant, Variant]:
    """The cut, and the kernels of a norm, its sums and its gradient."""
    cut = row_chunks(channels)
    held, columns, blocks, _ = cut
    constants = channels, relu, held, columns, blocks
    norm, sums, gradient = (
        one.variant(constants, num_warps=4) for one in (_NORM, _SUMS, _GRADIENT)
    )
    return cut, norm, sums, gradient


_NORM = TritonLauncher(batch_norm_kernel)
_SUMS = TritonLauncher(partial_sums_kernel)
_GRADIENT = TritonLauncher(gradient_kernel)
_ADD = TritonLauncher(sums_kernel).variant((PARTS, COLUMNS), num_warps=4)
