"""What gathers and scatters write beside; sums are held to float64 in test_products.py."""

import pytest
import torch

from pcnn.geometry import KernelMap
from pcnn.kernels.gather_scatter import gather, move_slots, scatter
from tests.kernels.triton.rows import DEVICE, MAPS, buffer_row, make, placed

NAN = float("nan")
HALF, SINGLE = torch.float16, torch.float32
GUARD = 3  # rows behind the result that no kernel may touch
#: Map, order of the work, channels, dtypes from and to, tile.
Move = tuple[str, str, int, torch.dtype, torch.dtype, int | None]
MOVES: list[Move] = [
    ("submanifold", "rows", 40, HALF, HALF, None),
    ("transposed", "rows", 1, HALF, SINGLE, None),
    ("strided", "rows", 8, SINGLE, HALF, None),
    ("strided", "rows", 3, SINGLE, SINGLE, None),
    ("submanifold", "rows", 24, SINGLE, SINGLE, 64),
    ("submanifold", "slots", 40, HALF, HALF, None),
    ("transposed", "slots", 3, HALF, HALF, 2),
    ("strided", "slots", 33, HALF, HALF, None),
]


@pytest.mark.parametrize("move", MOVES, ids=str)
def test_rows_go_where_their_triplets_are(move: Move) -> None:
    """Neither the padding nor rows of the identity are written."""
    kernel, order, channels, dtype, out_dtype, tile = move
    kernel_map = make(*MAPS[kernel])
    place = placed(kernel_map)
    x = torch.randn(kernel_map.n_in, channels, device=DEVICE).to(dtype)
    shape = place.gathered + GUARD, channels
    buffer = torch.full(shape, NAN, device=DEVICE, dtype=out_dtype)
    shifts, skip = torch.tensor(place.shifts, device=DEVICE), place.identity
    if order == "rows":
        gather(x, kernel_map.layout("by_in"), shifts, buffer, tile=tile, skip=skip)
    else:
        lists = kernel_map.in_index, *kernel_map.layout("counts"), shifts
        move_slots(x, *lists, buffer, tile=tile, skip=skip)
    keep = kernel_map.slot_index != place.identity
    expected = torch.full_like(buffer, NAN)
    source = x[kernel_map.in_index[keep].long()].to(out_dtype)
    expected[buffer_row(kernel_map, place)[keep]] = source
    torch.testing.assert_close(buffer, expected, rtol=0, atol=0, equal_nan=True)


def test_a_map_without_triplets() -> None:
    empty = torch.zeros(2, 0, dtype=torch.int32, device=DEVICE)
    none = KernelMap.from_pairs(*empty, torch.zeros(28).long(), 5, 5)
    x, shifts = torch.randn(5, 8, device=DEVICE), torch.zeros(27, dtype=torch.int64, device=DEVICE)
    out = torch.full((5, 8), NAN, device=DEVICE)
    gather(x, none.layout("by_in"), shifts, out)
    move_slots(x, none.in_index, none.layout("counts")[0], shifts, out)
    assert out.isnan().all()
    scatter(x[:0], none.layout("by_out"), shifts, out)
    assert (out == 0).all()
