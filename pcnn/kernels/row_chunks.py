"""How a matrix ``[N, C]`` is cut among programs that reduce or map its rows.

Columns are cut into blocks, rows into blocks of as many as a program holds at once. A reduction has
a limited number of programs for every block of columns, and each takes every so many-th block of
rows: so rows are read in their order, and a kernel that maps the same matrix afterwards, from its
end, finds what was read last in the cache. N may be a capacity: then a count on the device says how
many rows there are, and programs share those.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import triton
import triton.language as tl

from pcnn.kernels.product_tiles import power_of_two

#: Elements that a program holds at once, places beyond the last channel included.
BLOCK = 2048
#: Columns that one access reads without a gap, and at most as many.
NARROWEST, WIDEST = 32, 128
#: Programs of a reduction, two for each multiprocessor of a large device; a power of two, as many
#: partial results as are combined at once.
PROGRAMS = 256


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
