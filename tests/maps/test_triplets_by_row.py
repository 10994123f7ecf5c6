import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, layouts
from pcnn.maps import HashTable, SortedSearch, table_to_pairs, triplets_by_row
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from tests.clouds import surface_grid
from tests.maps.guarded import guarded

pytestmark = pytest.mark.usefixtures("emulated")

CASES = [(300, 3, 1), (300, 2, 2), (300, 3, 2), (1, 3, 1), (0, 3, 1), (70, 5, 1), (300, 1, 1)]


def built(n: int, size: int, stride: int) -> KernelMap:
    grid, kernel = surface_grid(n, batch_size=2), Kernel.of(size, stride)
    return HashTable(search="hash").build(grid, grid.strided(kernel), kernel)


def check(view: KernelMap, monkeypatch: pytest.MonkeyPatch) -> None:
    """The layouts of a map against torch's, whose order they keep."""
    view.layout("pairs")
    view.layout("counts")
    with guarded(monkeypatch):
        found = {name: view.layout(name) for name in ("by_out", "by_in")}
    for name, side in (("by_out", view), ("by_in", view.transpose())):
        for one, other in zip(found[name], layouts.by_out(side), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other), name


@pytest.mark.parametrize("order", ["ascending", "descending"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("n", "size", "stride"), CASES)
def test_places_of_the_triplets_of_every_row(
    n: int,
    size: int,
    stride: int,
    transposed: bool,
    order: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if order == "descending":
        request.getfixturevalue("reversed_blocks")
    one = built(n, size, stride)
    check(one.transpose() if transposed else one, monkeypatch)


def test_many_chunks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table_to_pairs, triplets_by_row):
        monkeypatch.setattr(module, "chunk_rows", lambda rows: 32)
    check(built(500, 3, 1), monkeypatch)


def test_a_map_with_both_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    one = built(200, 3, 1)
    one.transpose().layout("table")
    check(one.transpose(), monkeypatch)


@pytest.mark.parametrize("size", [3, 7])
def test_maps_without_a_table_or_of_many_slots_are_sorted(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, kernel = surface_grid(60, batch_size=2), Kernel.of(size)
    found = SortedSearch().build(grid, grid, kernel)
    pairs = found.in_index, found.out_index, found.offsets, grid.rows, grid.rows
    check(KernelMap.from_pairs(*pairs, symmetric=True, derive=DEVICE_LAYOUTS), monkeypatch)
    check(built(60, size, 1), monkeypatch)


def test_rows_with_several_inputs_in_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    in_index = torch.tensor([0, 1, 2, 0, 2, 1], dtype=torch.int32)
    out_index = torch.tensor([0, 0, 3, 1, 1, 3], dtype=torch.int32)
    pairs = in_index, out_index, torch.tensor([0, 3, 3, 6])
    check(KernelMap.from_pairs(*pairs, 4, 5, False, False, derive=DEVICE_LAYOUTS), monkeypatch)
