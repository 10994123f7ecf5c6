"""Gathers, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os

import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.clear_padding import clear_padding
from pcnn.kernels.gather import gather
from pcnn.kernels.gather_slots import gather_slots
from tests.kernels.triton.rows import DEVICE, MAPS, buffer_row, make, placed, with_turns

NAN = float("nan")


def gathered(kernel_map: KernelMap, x: torch.Tensor, rows: int) -> torch.Tensor:
    """What a gather leaves in a buffer of NaN: nothing in the padding, nothing of the identity."""
    place = placed(kernel_map)
    keep = kernel_map.slot_index != place.identity
    expected = torch.full((rows, x.shape[1]), NAN, dtype=x.dtype, device=DEVICE)
    expected[buffer_row(kernel_map, place)[keep]] = x[kernel_map.in_index[keep].long()]
    return expected


@pytest.mark.parametrize(
    ("kernel", "order", "vectorised", "channels"),
    with_turns(MAPS, ("rows", "slots", "slot by slot"), (True, False), turning=(1, 3, 16, 33, 40)),
)
def test_rows_go_where_their_triplets_are(
    kernel: str, order: str, vectorised: bool, channels: int
) -> None:
    kernel_map = make(*MAPS[kernel], n=40)
    place = placed(kernel_map)
    x = torch.randn(kernel_map.n_in, channels, device=DEVICE).half()
    guard = 3  # rows behind the buffer that nobody may touch
    buffer = torch.full_like(x[:1], NAN).repeat(place.gathered + guard, 1)
    shifts = torch.tensor(place.shifts, device=DEVICE)
    (counts,) = kernel_map.layout("counts")
    if order == "rows":
        by_in = kernel_map.layout("by_in")
        gather(x, by_in, shifts, buffer, skip=place.identity, vectorised=vectorised)
    elif order == "slots":
        lists = kernel_map.in_index, counts, shifts
        gather_slots(x, *lists, buffer, skip=place.identity, vectorised=vectorised)
    else:
        for slot in (k for block in place.blocks for k in block.slots):
            part = (*place.offsets[slot : slot + 2], place.shifts[slot])
            lists = kernel_map.in_index, counts, shifts
            gather_slots(x, *lists, buffer, part=part, vectorised=vectorised)
    expected = gathered(kernel_map, x, len(buffer))
    torch.testing.assert_close(buffer, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("tile", [1, 4, 32, 64])
def test_the_tile_changes_nothing(tile: int) -> None:
    kernel_map = make(Kernel.of(3))
    place = placed(kernel_map)
    x = torch.randn(kernel_map.n_in, 24, device=DEVICE)
    shifts = torch.tensor(place.shifts, device=DEVICE)
    buffer = torch.full((place.gathered, 24), NAN, device=DEVICE)
    by_in = kernel_map.layout("by_in")
    gather(x, by_in, shifts, buffer, skip=place.identity, tile=tile)
    expected = gathered(kernel_map, x, len(buffer))
    torch.testing.assert_close(buffer, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_values_are_rounded_to_the_buffer(dtype: torch.dtype) -> None:
    kernel_map = make(Kernel.of(2, 2))
    place = placed(kernel_map)
    x = torch.randn(kernel_map.n_in, 8, device=DEVICE, dtype=torch.float32)
    shifts = torch.tensor(place.shifts, device=DEVICE)
    buffer = torch.full((place.gathered, 8), NAN, device=DEVICE, dtype=dtype)
    gather(x, kernel_map.layout("by_in"), shifts, buffer)
    expected = gathered(kernel_map, x.to(dtype), len(buffer))
    torch.testing.assert_close(buffer, expected, rtol=0, atol=0, equal_nan=True)


def test_a_map_without_triplets_gathers_nothing() -> None:
    kernel_map = make(Kernel.of(3), n=0)
    x = torch.randn(0, 8, device=DEVICE)
    shifts = torch.zeros(27, dtype=torch.int64, device=DEVICE)
    buffer = torch.full((2, 8), NAN, device=DEVICE)
    gather(x, kernel_map.layout("by_in"), shifts, buffer)
    gather_slots(x, kernel_map.in_index, kernel_map.layout("counts")[0], shifts, buffer)
    assert buffer.isnan().all()


@pytest.mark.parametrize("channels", [1, 33, 40])
def test_only_the_padding_is_cleared(channels: int) -> None:
    kernel_map = make(Kernel.of(3))
    place = placed(kernel_map)
    ranges = place.padding()
    assert ranges
    buffer = torch.ones(place.gathered + 3, channels, device=DEVICE)
    expected = buffer.clone()
    for first, last in ranges:
        expected[first:last] = 0
    longest = max(last - first for first, last in ranges)
    clear_padding(torch.tensor(ranges, device=DEVICE), longest, buffer)
    assert torch.equal(buffer, expected)
    used = buffer_row(kernel_map, place)[kernel_map.slot_index != place.identity]
    assert (buffer[used] == 1).all()


def test_a_tile_that_cannot_be_is_refused() -> None:
    kernel_map = make(Kernel.of(2, 2))
    x = torch.randn(kernel_map.n_in, 8, device=DEVICE)
    shifts = torch.zeros(8, dtype=torch.int64, device=DEVICE)
    with pytest.raises(ValueError, match="power of two up to 512, got 24"):
        gather(x, kernel_map.layout("by_in"), shifts, x, tile=24)
