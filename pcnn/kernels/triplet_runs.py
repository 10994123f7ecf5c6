"""The numbers (i, j, k) of triplets that are sorted by one of them, in a Triton program.

Two of the numbers are listed; the third is the same along a run of the list, and only the runs are
stored. ``SORT`` names it: runs of ``k`` are slots, of ``i`` output rows, of ``j`` input rows.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def run_of(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    triplet,
    runs_ptr,  # SORT "k": [VOLUME] int64, lengths of the runs; else [runs + 1] int64, their starts
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
):
    """The run of equal numbers that holds a triplet, int32, and one past its end, int64."""
    if SORT == "k":
        slots = tl.arange(0, POWER)
        ends = tl.cumsum(tl.load(runs_ptr + slots, mask=slots < VOLUME, other=0), 0)
        run = tl.sum((ends <= triplet).to(tl.int32), 0)
        end = tl.min(tl.where(ends > triplet, ends, 0x7FFFFFFFFFFFFFFF), 0)
    else:
        run = runs * 0
        high = runs
        while run < high:  # runs that end at or before the triplet
            middle = (run + high) // 2
            if tl.load(runs_ptr + middle + 1) <= triplet:
                run = middle + 1
            else:
                high = middle
        end = tl.load(runs_ptr + run + 1)
    return run, end


@triton.jit  # type: ignore[untyped-decorator]
def following_run(  # type: ignore[no-untyped-def]
    triplet,
    run,
    end,
    runs_ptr,
    runs,
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    POWER: tl.constexpr,
):
    """The same for the triplet after those of ``run``; empty runs are passed over."""
    if SORT == "k":
        run, end = run_of(triplet, runs_ptr, runs, SORT, VOLUME, POWER)
    else:
        while end <= triplet:
            run += 1
            end = tl.load(runs_ptr + run + 1)
    return run, end


@triton.jit  # type: ignore[untyped-decorator]
def numbers_of(  # type: ignore[no-untyped-def]
    triplet,
    run,
    first_ptr,  # [T] int32: j where SORT is "k" or "i", else i
    second_ptr,  # [T] int32: i where SORT is "k", else k
    SORT: tl.constexpr,
    VOLUME: tl.constexpr,
    MIRRORED: tl.constexpr,
):
    """``(i, j, k)`` of a triplet, int64."""
    first = tl.load(first_ptr + triplet).to(tl.int64)
    second = tl.load(second_ptr + triplet).to(tl.int64)
    third = run.to(tl.int64)
    if SORT == "k":
        i, j, k = second, first, third
    elif SORT == "i":
        i, j, k = third, first, second
    else:
        i, j, k = first, third, second
    if MIRRORED:
        k = VOLUME - 1 - k
    return i, j, k
