"""The epilogue of float32 sums, and their rounding to the dtype of the result."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import NO_EPILOGUE, Epilogue
from pcnn.kernels.product_tiles import power_of_two
from pcnn.kernels.triton_launch import TritonLauncher

#: Elements of a program, places beyond the last channel included.
BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def with_epilogue(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    sums,
    places,
    channels,
    shown,
    there,
    scale_ptr,  # [C_out] or None
    shift_ptr,  # [C_out] or None
    residual_ptr,  # [N_out, C_out] or None
    RELU: tl.constexpr,
):
    """``relu(sums * scale + shift + residual)``; parts that are ``None`` are left out."""
    if scale_ptr is not None:
        sums *= tl.load(scale_ptr + channels, mask=shown, other=0.0).to(tl.float32)
    if shift_ptr is not None:
        sums += tl.load(shift_ptr + channels, mask=shown, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        sums += tl.load(residual_ptr + places, mask=there, other=0.0).to(tl.float32)
    if RELU:
        sums = tl.where(sums < 0, 0.0, sums)  # as torch's ReLU, NaN stays
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def write_sums(  # type: ignore[no-untyped-def]
    sums,  # [BLOCK_ROWS, COLUMNS] float32
    out,
    out_rows,  # [BLOCK_ROWS], negative where there is none
    columns,  # [COLUMNS], of a group
    group,
    scale,
    shift,
    residual,
    C_OUT: tl.constexpr,
    GROUPS: tl.constexpr,
    ADDS: tl.constexpr,
    RELU: tl.constexpr,
):
    """Store a block of outputs, or add it to what is there."""
    shown = (columns < C_OUT)[None, :]
    written = (out_rows >= 0)[:, None] & shown
    channels = group * C_OUT + columns[None, :]
    targets = out_rows.to(tl.int64)[:, None] * (GROUPS * C_OUT) + channels
    if ADDS:
        tl.atomic_add(out + targets, sums, mask=written, sem="relaxed")
    else:
        sums = with_epilogue(sums, targets, channels, shown, written, scale, shift, residual, RELU)
        tl.store(out + targets, sums.to(out.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=["n_out"])  # type: ignore[untyped-decorator]
def finish_kernel(  # type: ignore[no-untyped-def]
    sums_ptr,  # [PARTS, N_out, CHANNELS] float32
    out_ptr,  # [N_out, CHANNELS]
    scale_ptr,
    shift_ptr,
    residual_ptr,
    n_out,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some rows of the output."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, COLUMNS)[None, :]
    shown = channels < CHANNELS
    there = (rows < n_out)[:, None] & shown
    places = rows[:, None] * CHANNELS + channels
    sums = tl.load(sums_ptr + places, mask=there, other=0.0)
    for part in tl.static_range(1, PARTS):
        first = part * n_out.to(tl.int64) * CHANNELS
        sums += tl.load(sums_ptr + first + places, mask=there, other=0.0)
    sums = with_epilogue(
        sums, places, channels, shown, there, scale_ptr, shift_ptr, residual_ptr, RELU
    )
    tl.store(out_ptr + places, sums.to(out_ptr.dtype.element_ty), mask=there)


def finish(sums: Tensor, out_dtype: torch.dtype, epilogue: Epilogue | None = None) -> Tensor:
    """``relu(sums * scale + shift + residual)`` in one pass; absent parts are left out."""
    scale, shift, residual, relu = epilogue or NO_EPILOGUE
    parts = sums.shape[0] if sums.ndim == 3 else 1
    if parts == 1 and scale is None and shift is None and residual is None and not relu:
        return sums.to(out_dtype)
    n_out, channels = sums.shape[-2:]
    reuse = parts == 1 and out_dtype == sums.dtype
    out = sums if reuse else torch.empty(n_out, channels, dtype=out_dtype, device=sums.device)
    columns = power_of_two(channels)
    rows = max(1, BLOCK // columns)
    residual = None if residual is None else residual.contiguous()
    _LAUNCH(
        (-(-n_out // rows), 1),
        (sums, out, scale, shift, residual),
        (n_out,),
        (channels, parts, relu, rows, columns),
        num_warps=4,
    )
    return out


_LAUNCH = TritonLauncher(finish_kernel)
