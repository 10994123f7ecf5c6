"""Which pairs of a slot a Triton program works on, found from the slots' counts on the device.

Triplets lie slot by slot. Every slot is cut into chunks of at most L pairs; the chunks of slot 0
come first, then those of slot 1, ... The host knows the number of triplets T but not how many each
slot has. So it launches as many programs as any split of T could need (`most_chunks`). Each looks
its chunk up, and spare ones find an empty range.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pcnn.kernels.product_tiles import power_of_two


def most_chunks(triplets: int, volume: int, chunk: int) -> int:
    """Chunks that ``triplets`` pairs in ``volume`` slots can have at most: ``floor(T / L) + K``.

    ``sum of ceil(count / L) <= (T + K (L - 1)) / L``, and no chunk is empty.
    """
    return min(triplets, triplets // chunk + volume)


def slots_of(volume: int) -> int:
    """Power of two of at least K: that of 32 slots serves all small kernels, as one variant."""
    return max(32, power_of_two(volume))


@triton.jit  # type: ignore[untyped-decorator]
def slot_chunk(  # type: ignore[no-untyped-def]  # the compiler reads annotations too
    number,
    counts_ptr,  # [K] int64
    chunk,
    volume,
    SLOTS: tl.constexpr,
):
    """Slot, first and one-past-last pair of chunk ``number``."""
    slots = tl.arange(0, SLOTS)
    counts = tl.load(counts_ptr + slots, mask=slots < volume, other=0)
    chunks = (counts + chunk - 1) // chunk
    # slots that end before this chunk: all of them, padding included, for a spare program
    slot = tl.sum((tl.cumsum(chunks, 0) <= number).to(tl.int32), 0)
    before = slots < slot
    start = tl.sum(tl.where(before, counts, 0), 0)
    end = start + tl.sum(tl.where(slots == slot, counts, 0), 0)
    first = start + (number - tl.sum(tl.where(before, chunks, 0), 0)) * chunk
    return tl.minimum(slot, volume), tl.minimum(first, end), tl.minimum(first + chunk, end)


@triton.jit  # type: ignore[untyped-decorator]
def chunks_of_slot(  # type: ignore[no-untyped-def]
    slot,
    counts_ptr,  # [K] int64
    chunk,
    volume,
    SLOTS: tl.constexpr,
):
    """First and one-past-last chunk of a slot, both int64; the inverse of `slot_chunk`."""
    slots = tl.arange(0, SLOTS)
    counts = tl.load(counts_ptr + slots, mask=slots < volume, other=0)
    chunks = (counts + chunk - 1) // chunk
    first = tl.sum(tl.where(slots < slot, chunks, 0), 0)
    return first, first + tl.sum(tl.where(slots == slot, chunks, 0), 0)
