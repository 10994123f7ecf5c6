"""Mean and variance of every channel over the rows, in one pass.

Every place of a program keeps mean and squared deviations of the rows it has seen (Welford 1962):
sums of squares would lose what is small beside the mean. Places, and then programs, are combined as
Chan et al. (1979) do, in a fixed order and without atomics, so two runs give identical bits. Rows
are read in their order, so a kernel that maps the same matrix afterwards, from its end, finds what
was read last in the cache. N may be a capacity: then a count on the device says how many there are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcnn.kernels.conv_spec import RunningStatistics
from pcnn.kernels.product_tiles import power_of_two
from pcnn.kernels.triton_launch import TritonLauncher, Variant

#: Elements that a program holds at once, places beyond the last channel included.
BLOCK = 2048
#: Columns that one access reads without a gap, and at most as many.
NARROWEST, WIDEST = 32, 128
#: Programs of a reduction, two for each multiprocessor of a large device; a power of two, as many
#: partial results as are combined at once.
PROGRAMS = 256
#: Columns, and partial results, that a program that adds up partial sums holds: all there are.
COLUMNS, PARTS = 8, PROGRAMS


class RowChunks(NamedTuple):
    """A cut of ``[N, C]``."""

    rows: int  # rows that a program holds at once
    columns: int  # columns that it holds, a power of two
    blocks: int  # of columns
    most: int  # programs of a reduction for every block of columns, at most

    def programs(self, rows: int) -> tuple[int, int]:
        """Programs that map ``rows`` rows, and that reduce them, for every block of columns."""
        number = -(-rows // self.rows)
        return number, min(number, self.most)


@functools.cache
def row_chunks(channels: int) -> RowChunks:
    """The cut of a matrix of so many channels, at least 1."""
    # blocks that divide C leave no place empty
    divisor = channels & -channels
    columns = divisor if divisor >= NARROWEST else power_of_two(channels)
    columns = min(columns, WIDEST)
    blocks = -(-channels // columns)
    return RowChunks(BLOCK // columns, columns, blocks, max(1, PROGRAMS // blocks))


@triton.jit
def rows_there(rows, count_ptr):  # type: ignore[no-untyped-def]  # the compiler reads annotations
    """Rows that exist: the count on the device, if there is one, of at most ``rows``."""
    there = rows.to(tl.int64)
    if count_ptr is not None:
        there = tl.minimum(there, tl.load(count_ptr).to(tl.int64))
    return there


@triton.jit  # type: ignore[untyped-decorator]
def rows_of_program(program, programs, there, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows that a program of a reduction finds: those of every ``programs``-th block."""
    blocks = (there + ROWS - 1) // ROWS
    rest = blocks % programs
    own = blocks // programs + (program < rest)
    last = tl.where(rest > 0, rest, programs) - 1  # has the last block, which may not be full
    return own * ROWS - tl.where(program == last, blocks * ROWS - there, 0)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "programs"], do_not_specialize_on_alignment=["count_ptr"]
)
def partial_statistics_kernel(  # type: ignore[no-untyped-def]  # the compiler reads annotations
    y_ptr,  # [rows, CHANNELS]
    partials_ptr,  # [2, programs, CHANNELS] float32: means, and squared deviations from them
    count_ptr,  # [1] int32 or None
    batches_ptr,  # [] int64 or None
    rows,
    programs,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """A share of the rows of one block of columns."""
    program, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    there = rows_there(rows, count_ptr)
    if batches_ptr is not None:  # noqa: SIM102 (what is known when compiling stands alone)
        # here, so that the second kernel reads what no program of its own writes
        if tl.program_id(0) == 0:  # noqa: SIM102
            if there > 1:
                tl.store(batches_ptr, tl.load(batches_ptr) + 1)
    columns = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < CHANNELS
    lanes = tl.arange(0, ROWS)
    seen = tl.zeros([ROWS], dtype=tl.float32)
    mean = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    squares = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in tl.range(program.to(tl.int64) * ROWS, there, programs * ROWS, num_stages=3):
        numbers = start + lanes
        live = numbers < there
        mask = live[:, None] & inside[None, :]
        places = numbers[:, None] * CHANNELS + columns[None, :]
        values = tl.load(y_ptr + places, mask=mask, other=0.0).to(tl.float32)
        seen += live.to(tl.float32)
        values = tl.where(live[:, None], values, mean)
        delta = values - mean
        mean += delta * (1.0 / tl.maximum(seen, 1.0))[:, None]
        squares += delta * (values - mean)
    number = tl.sum(seen, 0)
    total = tl.sum(mean * seen[:, None], 0) / tl.maximum(number, 1.0)  # [COLUMNS]
    apart = tl.where(seen[:, None] > 0, mean - total[None, :], 0.0)
    squares += apart * apart * seen[:, None]
    targets = partials_ptr + program.to(tl.int64) * CHANNELS + columns
    tl.store(targets, total, mask=inside)
    tl.store(targets + programs.to(tl.int64) * CHANNELS, tl.sum(squares, 0), mask=inside)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["rows", "programs", "channels", "momentum", "eps"],
    do_not_specialize_on_alignment=["count_ptr"],
)
def statistics_kernel(  # type: ignore[no-untyped-def]
    partials_ptr,  # [2, programs, C] float32
    statistics_ptr,  # [2, C] float32: means, and 1 / sqrt(variance + eps)
    running_mean_ptr,  # [C]
    running_var_ptr,  # [C]
    batches_ptr,  # [] int64 or None
    count_ptr,  # [1] int32 or None
    rows,
    programs,
    channels,
    momentum,
    eps,
    CUMULATIVE: tl.constexpr,
    ROWS: tl.constexpr,  # of the first kernel
    PARTS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Some channels; fewer than two rows have the running statistics, which stay as they are."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < channels
    there = rows_there(rows, count_ptr)
    running_mean = tl.load(running_mean_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    running_var = tl.load(running_var_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    # deviations from the first mean: small beside the standard deviation, unlike the means
    pivot = tl.load(partials_ptr + columns, mask=inside, other=0.0)
    parts = tl.arange(0, PARTS)
    seen = rows_of_program(parts, programs, there, ROWS).to(tl.float32)
    live = (seen > 0) & (parts < programs)
    mask = live[:, None] & inside[None, :]
    places = parts[:, None] * channels + columns[None, :]
    shift = tl.load(partials_ptr + places, mask=mask, other=0.0) - pivot[None, :]
    shift = tl.where(live[:, None], shift, 0.0)
    squares = tl.load(partials_ptr + programs * channels + places, mask=mask, other=0.0)
    squares += shift * shift * seen[:, None]
    number = tl.maximum(there, 1).to(tl.float32)
    moved = tl.sum(shift * seen[:, None], 0) / number
    total = tl.sum(squares, 0) - moved * moved * number
    total = tl.where(total < 0, 0.0, total)  # NaN stays
    some = there > 1
    mean = tl.where(some, pivot + moved, running_mean)
    variance = tl.where(some, total / number, running_var)
    share = momentum
    if CUMULATIVE:
        share = 1.0 / tl.load(batches_ptr).to(tl.float32)
    unbiased = total / tl.maximum(number - 1.0, 1.0)
    running_mean = (1.0 - share) * running_mean + share * mean
    running_var = (1.0 - share) * running_var + share * unbiased
    changed = inside & some
    kept = running_mean.to(running_mean_ptr.dtype.element_ty)
    tl.store(running_mean_ptr + columns, kept, mask=changed)
    kept = running_var.to(running_var_ptr.dtype.element_ty)
    tl.store(running_var_ptr + columns, kept, mask=changed)
    tl.store(statistics_ptr + columns, mean, mask=inside)
    scale = 1.0 / tl.sqrt_rn(variance + eps)
    tl.store(statistics_ptr + channels + columns, scale, mask=inside)


def batch_statistics(
    y: Tensor, running: RunningStatistics, eps: float, count: Tensor | None = None
) -> Tensor:
    """Statistics of a batch, which also update the running ones."""
    rows, channels = y.shape
    mean, variance, batches, momentum = running
    cut, partial, whole = _kernels(channels, momentum is None and batches is not None)
    _, programs = cut.programs(rows)
    partials = torch.empty((2, programs, channels), dtype=torch.float32, device=y.device)
    statistics = torch.empty((2, channels), dtype=torch.float32, device=y.device)
    grid = programs * cut.blocks, 1
    partial(grid, (y, partials, count, batches), (rows, programs))
    share = 0.0 if momentum is None else float(momentum)
    whole(
        (-(-channels // COLUMNS), 1),
        (partials, statistics, mean, variance, batches, count),
        (rows, programs, channels, share, float(eps)),
    )
    return statistics


@functools.lru_cache(maxsize=4096)
def _kernels(channels: int, cumulative: bool) -> tuple[RowChunks, Variant, Variant]:
    cut = row_chunks(channels)
    held, columns, blocks, _ = cut
    partial = _PARTIAL.variant((channels, held, columns, blocks), num_warps=4)
    whole = _STATISTICS.variant((cumulative, held, PARTS, COLUMNS), num_warps=4)
    return cut, partial, whole


_PARTIAL = TritonLauncher(partial_statistics_kernel)
_STATISTICS = TritonLauncher(statistics_kernel)
