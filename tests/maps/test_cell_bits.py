"""Levels from bitmaps of cells: those that a sort finds."""

import pytest
import torch

from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps.cell_bits import LEAST_WORDS, CellBits, bitmap_words, fitting_words
from pcnn.maps.levels import box_of, extent_of, pack_cells, unique_sites
from tests.maps import conftest

device = conftest.device

STRIDES = [(2, 2, 2), (4, 4, 4), (4, 4, 8), (1, 1, 3)]


@pytest.mark.parametrize("n", [0, 1, 900])
@pytest.mark.parametrize("short", [0, 1])
def test_equal_those_of_a_sort(device: torch.device, n: int, short: int) -> None:
    draw = torch.Generator().manual_seed(n)
    extents = torch.tensor([3, 210, 110, 50])
    cells = (torch.rand(n, 4, generator=draw) * extents).int()
    cells[:, 1:] -= torch.tensor([151, 20, 70])  # on both sides of zero
    cells[: n // 2, 1:] //= 4  # dense in part
    cells = cells.unique(dim=0).int().to(device)
    sites, spare = len(cells), 37
    keys, extent = pack_cells(cells, DEFAULT_FORMAT)
    keys = torch.cat([keys, keys.new_full((spare,), 1 << 61)])
    assert torch.equal(extent, extent_of(keys[:sites], DEFAULT_FORMAT))
    count = torch.tensor([sites], dtype=torch.int32).to(device)
    rooms = [sites + 5, max(1, sites // 3), sites + 5, sites + 5]
    wanted = unique_sites(keys, extent, STRIDES, DEFAULT_FORMAT, count, rooms=rooms)

    words = bitmap_words(box_of(extent.tolist(), DEFAULT_FORMAT), 3, STRIDES)
    bits = CellBits.of(fitting_words(words, sites) - 4096 * short, device)
    bits.marks.zero_()
    report = torch.zeros(len(STRIDES) + 1, dtype=torch.int32, device=device)
    counts, needed = report[:-1], report[-1:]
    found = bits.sites(keys, count, extent, STRIDES, DEFAULT_FORMAT, 3, rooms, counts, needed)
    assert int(needed) == words
    if short:
        assert not counts.any()
        assert (found.keys == DEFAULT_FORMAT.sentinel).all()
        assert not found.first.any()
        assert not found.inverse.any()
        return
    assert torch.equal(counts, wanted.counts)
    assert torch.equal(found.keys, wanted.keys)
    assert torch.equal(found.inverse, wanted.inverse)
    for level, many in enumerate(counts.tolist()):
        first = found.first[level]
        assert not first[many:].any()
        room = torch.arange(many, dtype=torch.int32).clamp(max=rooms[level] - 1)
        assert torch.equal(found.inverse[level][first[:many].long()].cpu(), room)


def test_large_boxes_are_left_to_a_sort() -> None:
    assert fitting_words(LEAST_WORDS, 0) == LEAST_WORDS
    assert fitting_words(LEAST_WORDS + 4096, 0) == 0
    assert fitting_words(LEAST_WORDS, 0, 1.33) > 1.32 * LEAST_WORDS
    assert fitting_words(128 * 90_000, 90_000) > 0
    assert fitting_words(1 << 27, 1 << 30, 1.1) == 0
    assert bitmap_words(((0, 0, 0), (0, 0, 0)), 1, [(2, 2, 2)] * 3) == 3 * 4096
