import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, layouts, row_lists
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid
from tests.dataflows.fan_in import map_of, random_map

Triplets = list[tuple[int, int, int]]


def triplets_of(kernel_map: KernelMap) -> Triplets:
    columns = kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def listed(kernel_map: KernelMap) -> Triplets:
    out, slots, counts, fan_in, starts, in_index = kernel_map.layout("row_lists")
    found: Triplets = []
    for tile, count in enumerate(counts.tolist()):
        assert (fan_in[tile, count:] == 0).all()
        for column in range(count):
            first, last = starts[tile, column], starts[tile, column + 1]
            assert int((last - first).max()) == int(fan_in[tile, column]) > 0
            slot = int(slots[tile, column])
            for row, *ends in zip(*(t.tolist() for t in (out[tile], first, last)), strict=True):
                found += [(row, j, slot) for j in in_index[slice(*ends)].tolist()]
    return sorted(found)


@pytest.mark.parametrize(("n_in", "n_out", "volume"), [(50, 300, 27), (9, 1, 8), (40, 128, 125)])
def test_ranges_hold_every_triplet_once(n_in: int, n_out: int, volume: int) -> None:
    kernel_map = random_map(n_in, n_out, volume, 5 * n_out)
    for view in (kernel_map, kernel_map.transpose()):
        assert listed(view) == triplets_of(view)
        out = view.layout("row_lists")[0]
        assert out[out >= 0].sort().values.tolist() == list(range(view.n_out))
        assert all(tensor.dtype == torch.int32 for tensor in view.layout("row_lists"))


@pytest.mark.parametrize(("n_in", "n_out"), [(0, 0), (0, 5), (5, 0)])
def test_maps_without_triplets(n_in: int, n_out: int) -> None:
    assert listed(random_map(n_in, n_out, 27, 0)) == []


def test_the_transpose_of_a_symmetric_map_names_its_slots_backwards() -> None:
    kernel_map = random_map(200, 200, 27, 800, symmetric=True)
    assert listed(kernel_map) == triplets_of(kernel_map)
    other = kernel_map.transpose()
    assert other.layout("row_lists")[-1] is kernel_map.layout("row_lists")[-1]
    assert listed(other) == triplets_of(other)


def test_rows_stand_as_in_the_tiles_of_a_table() -> None:
    grid, kernel = surface_grid(400), Kernel.of(3)
    kernel_map = SortedSearch().build(grid, grid, kernel)
    for found, expected in zip(
        kernel_map.layout("row_lists")[:3], kernel_map.layout("tiles"), strict=False
    ):
        assert torch.equal(found, expected)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    several = torch.zeros(9, dtype=torch.int64)
    monkeypatch.setattr(row_lists, "MOST_TRIPLETS", 8)
    with pytest.raises(ValueError, match="9 triplets are more than int32"):
        map_of(several, several, several, 1, 1, 1).layout("row_lists")
    monkeypatch.setattr(layouts, "TABLE_BUDGET_BYTES", 7)
    with pytest.raises(ValueError, match="over the budget of 7"):
        map_of(several, several, several, 1, 1, 1).layout("row_lists")
