"""Chunks of slots, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import pytest
import torch
import triton

from pcnn.kernels.gathered_product import chunks_of_slot, most_chunks, slot_chunk
from pcnn.kernels.product_tiles import power_of_two
from tests.kernels.triton.rows import DEVICE

tl = triton.language


@triton.jit
def write_chunks(counts_ptr, out_ptr, chunk, VOLUME: tl.constexpr, SLOTS: tl.constexpr):
    number = tl.program_id(0)
    slot, first, last = slot_chunk(number, counts_ptr, chunk, VOLUME, SLOTS)
    tl.store(out_ptr + 3 * number, slot)
    tl.store(out_ptr + 3 * number + 1, first)
    tl.store(out_ptr + 3 * number + 2, last)


@triton.jit
def write_ranges(counts_ptr, out_ptr, chunk, VOLUME: tl.constexpr, SLOTS: tl.constexpr):
    slot = tl.program_id(0)
    first, last = chunks_of_slot(slot, counts_ptr, chunk, VOLUME, SLOTS)
    tl.store(out_ptr + 2 * slot, first)
    tl.store(out_ptr + 2 * slot + 1, last)


CASES = [
    ([5], 1),
    ([4, 1, 9], 4),
    ([8, 4, 12], 4),
    ([0, 3, 0, 0, 7, 0], 4),
    ([0, 0, 0], 1),
    ([(7 * k) % 5 for k in range(27)], 1),
    ([(k * k) % 3 for k in range(125)], 4),
    ([3 << 40, 1, 2 << 40], 1 << 41),
]


@pytest.mark.parametrize(("counts", "chunk"), CASES)
def test_chunks_cover_every_slot_in_order(counts: list[int], chunk: int) -> None:
    expected, start = [], 0
    ranges = []
    for slot, count in enumerate(counts):
        ranges.append(len(expected))
        for first in range(start, start + count, chunk):
            expected.append((slot, first, min(first + chunk, start + count)))
        start += count
    assert len(expected) <= most_chunks(start, len(counts), chunk)
    programs = max(1, min(len(expected) + 3, most_chunks(start, len(counts), chunk) + 1))
    out = torch.full((programs, 3), -1, dtype=torch.int64, device=DEVICE)
    on_device = torch.tensor(counts, device=DEVICE)
    sizes = len(counts), triton.next_power_of_2(len(counts))
    write_chunks[(programs,)](on_device, out, chunk, *sizes)
    spare = [(len(counts), start, start)] * (programs - len(expected))
    assert [tuple(row) for row in out.tolist()] == expected + spare

    out = torch.full((len(counts), 2), -1, dtype=torch.int64, device=DEVICE)
    write_ranges[(len(counts),)](on_device, out, chunk, *sizes)
    assert out.tolist() == [
        [a, b] for a, b in zip(ranges, [*ranges[1:], len(expected)], strict=True)
    ]
    assert power_of_two(len(counts)) == triton.next_power_of_2(len(counts))
