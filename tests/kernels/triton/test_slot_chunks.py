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


CASES = {
    "one slot": [5],
    "three": [4, 1, 9],
    "exact multiples": [8, 4, 12],
    "empty slots": [0, 3, 0, 0, 7, 0],
    "nothing": [0, 0, 0],
    "27": [(7 * k) % 5 for k in range(27)],
    "125": [(k * k) % 3 for k in range(125)],
    "beyond int32": [3 << 40, 1, 2 << 40],
}


@pytest.mark.parametrize("counts", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("chunk", [1, 4, 1 << 41])
def test_chunks_cover_every_slot_in_order(counts: list[int], chunk: int) -> None:
    expected, start = [], 0
    ranges = []
    for slot, count in enumerate(counts):
        ranges.append(len(expected))
        if count // chunk > 100:
            pytest.skip("too many chunks to list")
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


def test_most_chunks_is_never_short() -> None:
    generator = torch.Generator().manual_seed(0)
    for volume in (1, 2, 27):
        for chunk in (1, 3, 16):
            counts = torch.randint(0, 40, (50, volume), generator=generator)
            for row in counts.tolist():
                needed = sum(-(-count // chunk) for count in row)
                assert needed <= most_chunks(sum(row), volume, chunk)


def test_powers_of_two() -> None:
    numbers = 1, 2, 3, 4, 27, 32, 33, 125, 1000
    assert [power_of_two(n) for n in numbers] == [triton.next_power_of_2(n) for n in numbers]
