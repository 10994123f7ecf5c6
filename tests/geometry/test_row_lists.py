from itertools import pairwise

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, layouts, row_lists
from pcnn.geometry.row_lists import fan_in_levels, stored_steps
from pcnn.maps import SortedSearch
from pcnn.ops.conformance import map_of, moved, random_map
from tests.clouds import surface_grid, triplets_of
from tests.dataflows.fan_in import leave_room

Triplets = list[tuple[int, int, int]]


def listed(kernel_map: KernelMap) -> Triplets:
    """Rows that tiles gather, by ranges, and by the steps of tiles that list them."""
    out, starts, tile_steps, slots, rows, in_index = kernel_map.layout("row_lists")
    found: Triplets = []
    ends = tile_steps.tolist()
    assert len(ends) == len(out) + 1
    assert ends[0] == 0
    assert len(slots) == len(rows) == stored_steps(len(in_index), len(out), kernel_map.volume)
    for tile, (first, last) in enumerate(pairwise(ends)):
        ranged = []
        places = [place for place in out[tile].tolist() if place >= 0]
        for slot in range(kernel_map.volume):
            ranges = starts[tile, slot : slot + 2, : len(places)].tolist()
            for row, begin, end in zip(places, *ranges, strict=True):
                ranged += [(row, j, slot) for j in in_index[begin:end].tolist()]
        found += ranged
        if last > len(slots):
            continue
        assert (slots[first:last].diff() >= 0).all()
        stepped = []
        for slot, own in zip(slots[first:last].tolist(), rows[first:last].tolist(), strict=True):
            gathered = [(row, j, slot) for row, j in zip(out[tile].tolist(), own, strict=True)]
            stepped += [triplet for triplet in gathered if triplet[1] >= 0]
            assert max(own) >= 0
        assert sorted(stepped) == sorted(ranged)
    return sorted(found)


@pytest.mark.parametrize(
    ("n_in", "n_out", "volume"),
    [(50, 300, 27), (9, 1, 8), (40, 128, 125), (130, 130, 27), (0, 5, 27)],
)
@pytest.mark.parametrize("triplets", [1, 30])
def test_steps_gather_every_triplet_once(n_in: int, n_out: int, volume: int, triplets: int) -> None:
    kernel_map = random_map(n_in, n_out, volume, triplets * n_out, symmetric=n_in == n_out)
    for view in (kernel_map, kernel_map.transpose()):
        assert listed(view) == sorted(triplets_of(view))
        out = view.layout("row_lists")[0]
        assert out[out >= 0].sort().values.tolist() == list(range(view.n_out))
        assert all(tensor.dtype == torch.int32 for tensor in view.layout("row_lists"))


def test_long_tiles_come_first_and_rows_of_a_level_stand_together() -> None:
    kernel_map = random_map(300, 1000, 27, 4000)
    out, _, tile_steps, *_ = kernel_map.layout("row_lists")
    assert (tile_steps.diff().diff() <= 0).all()
    fan_in = torch.zeros(1000, 27, dtype=torch.int64)
    entries = kernel_map.out_index.long(), kernel_map.slot_index
    fan_in.index_put_(entries, torch.ones(4000, dtype=torch.int64), accumulate=True)
    levels = fan_in_levels(fan_in)
    for level in levels.unique().tolist():  # at most two tiles hold rows of others
        tiles = torch.isin(out, (levels == level).nonzero()).any(1).sum()
        assert tiles <= -(-int((levels == level).sum()) // 128) + 1


def test_levels_are_inputs_of_the_fullest_slot() -> None:
    most = torch.tensor([1, 2, 3, 4, 5, 8, 9, 16, 17, 100_000, 0])
    fan_in = torch.stack((most, (most - 1).clamp(min=0)), dim=1)
    last = row_lists.LAST_LEVEL
    assert fan_in_levels(fan_in).tolist() == [1, 2, 3, 4, 5, 5, 6, 6, 7, last - 1, last]


def test_rows_of_one_input_per_slot_take_a_step_a_slot_of_a_tile() -> None:
    grid, kernel = surface_grid(2000), Kernel.of(3)
    kernel_map = SortedSearch().build(grid, grid, kernel)
    _, starts, tile_steps, *_ = kernel_map.layout("row_lists")
    filled = (starts.diff(dim=1) > 0).any(2).sum(1)
    assert torch.equal(tile_steps.diff(), filled.to(torch.int32))


def test_tiles_are_listed_that_end_within_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_map = random_map(200, 500, 27, 1200)
    ends = kernel_map.layout("row_lists")[2].tolist()
    assert len(ends) == 5
    assert ends[-1] < stored_steps(1200, 4, 27)
    for end in ends[1:]:
        for room in (end - 1, end, end + 1):
            leave_room(monkeypatch, kernel_map, room)
            again = moved(kernel_map, "cpu")
            assert listed(again) == sorted(triplets_of(kernel_map))
            layout = again.layout("row_lists")
            assert layout[3].shape[0] == room
            assert layout[2].tolist() == ends


def test_room_for_steps() -> None:
    assert stored_steps(0, 3, 27) == 0
    assert stored_steps(50, 3, 27) == 50  # a step takes a triplet
    assert stored_steps(10**6, 3, 27) == 162  # two for every slot of a tile
    rows = 20_000_000  # of a room: 7.8 neighbours at K = 27, 21 at K = 125
    tiles = rows // 128
    for triplets, volume, a_tile in ((7.8, 27, 27), (21, 125, 154)):
        found = stored_steps(int(triplets * rows), tiles, volume)
        assert found / tiles == pytest.approx(a_tile, abs=1)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    several = torch.zeros(9, dtype=torch.int64)
    monkeypatch.setattr(row_lists, "MOST_TRIPLETS", 8)
    with pytest.raises(ValueError, match="9 triplets are more than int32"):
        map_of(several, several, several, 1, 1, 1).layout("row_lists")
    monkeypatch.setattr(layouts, "TABLE_BUDGET_BYTES", 7)
    with pytest.raises(ValueError, match="over the budget of 7"):
        map_of(several, several, several, 1, 1, 1).layout("row_lists")
