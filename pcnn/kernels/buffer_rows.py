"""Where in a padded buffer the rows of triplets lie, for Triton kernels that walk them by row.

A buffer holds the rows of every slot in the order of ``pairs``; the rows of slot k begin at
``shifts[k] + offsets[k]``, so the triplet at position p of ``pairs`` has row ``p + shifts[slot]``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def buffer_rows(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    entry,
    last,
    position_ptr,  # [T] int32
    slot_ptr,  # [T] int16
    shifts_ptr,  # [K] int64
    skip,
):
    """Buffer rows of some triplets, -1 for those that have none.

    Args:
        entry: which triplets, places in a list of them by row; int64, any shape.
        last: one past the last triplet of the row, of the same shape.
        position_ptr: ``[T]`` int32, positions of the listed triplets in ``pairs``.
        slot_ptr: ``[T]`` int16, their slots.
        shifts_ptr: ``[K]`` int64, buffer row of a slot's triplet less its position.
        skip: slot whose triplets have no rows, -1 if all have.

    Returns:
        int64, of the shape of ``entry``.
    """
    exists = entry < last
    position = tl.load(position_ptr + entry, mask=exists, other=0)
    slot = tl.load(slot_ptr + entry, mask=exists, other=0).to(tl.int32)
    row = position + tl.load(shifts_ptr + slot, mask=exists, other=0)
    return tl.where(exists & (slot != skip), row, -1)
