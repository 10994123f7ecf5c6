"""How a matrix ``[N, C]`` is cut among programs that reduce or map its rows.

Columns are cut into blocks; rows, for a reduction, into as many chunks of equal length as there are
programs. N may be a capacity: then a count on the device says how many rows there are, and programs
share those.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from pcnn.kernels.outer_products import multiprocessors_of
from pcnn.kernels.product_tiles import power_of_two

#: Elements that a program holds at once, places beyond the last channel included.
BLOCK = 2048
#: Columns that one access reads without a gap, and at most as many.
NARROWEST, WIDEST = 32, 128
#: Programs of a reduction for every multiprocessor.
RESIDENT = 4


class RowChunks(NamedTuple):
    """A cut of ``[N, C]``.

    Args:
        rows: rows that a program holds at once.
        columns: columns that it holds, a power of two.
        blocks: of columns.
        programs: of a reduction, for every block of columns.
    """

    rows: int
    columns: int
    blocks: int
    programs: int


def row_chunks(rows: int, channels: int, device: torch.device) -> RowChunks:
    """The cut of ``[N, C]`` on a device.

    Args:
        rows: N, at least 1.
        channels: C, at least 1.
        device: where it is computed.
    """
    held, columns, blocks, most = _cut(channels, device)
    return RowChunks(held, columns, blocks, min(-(-rows // held), most))


@functools.cache
def _cut(channels: int, device: torch.device) -> tuple[int, int, int, int]:
    # blocks that divide C leave no place empty
    divisor = channels & -channels
    columns = divisor if divisor >= NARROWEST else power_of_two(channels)
    columns = min(columns, WIDEST)
    blocks = -(-channels // columns)
    most = max(1, multiprocessors_of(device) * RESIDENT // blocks)
    return BLOCK // columns, columns, blocks, most


@triton.jit
def rows_there(rows, count_ptr):  # type: ignore[no-untyped-def]
    """Rows that exist: the count on the device, if there is one, of at most ``rows``.

    Args:
        rows: N.
        count_ptr: ``[1]`` int32 or None.
    """
    there = rows.to(tl.int64)
    if count_ptr is not None:
        there = tl.minimum(there, tl.load(count_ptr).to(tl.int64))
    return there


@triton.jit  # type: ignore[untyped-decorator]
def chunk_length(there, programs, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of a program: whole blocks of ``ROWS``; the last programs may find none.

    Args:
        there: rows that exist.
        programs: number of programs.
        ROWS: rows that a program holds at once.
    """
    blocks = (there + ROWS - 1) // ROWS
    return (blocks + programs - 1) // programs * ROWS
