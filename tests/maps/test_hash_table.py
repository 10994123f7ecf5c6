import itertools

import pytest
import torch

from pcnn.geometry import Kernel, KeyFormat, VoxelGrid, grid_of_cells
from pcnn.maps import SortedSearch, hash_table
from pcnn.maps.hash_table import HashTable
from tests.clouds import dense_grid, surface_grid
from tests.maps.guarded import guarded
from tests.maps.test_builders import check

SWITCHES = [
    HashTable(search=search, simplified=simplified, symmetry=not simplified)
    for search, simplified in itertools.product(("hash", "grid"), (True, False))
]


def switches(builder: HashTable) -> str:
    steps = ("simplified", "symmetry")
    return "-".join([builder.search, *(step for step in steps if getattr(builder, step))])


@pytest.mark.parametrize("builder", SWITCHES, ids=switches)
def test_kernels_of_several_mask_words_and_passes(emulated: None, builder: HashTable) -> None:
    grid = surface_grid(40)
    check(builder, grid, grid, Kernel.of(7))
    check(builder, grid, grid, Kernel.of((9, 9, 5)))  # more slots than a tile holds


@pytest.mark.parametrize("builder", SWITCHES, ids=switches)
def test_full_groups_spill_into_the_next(emulated: None, builder: HashTable) -> None:
    # every cell of a cube: no group of neighbours along z has room left
    grid = dense_grid(6, batch_size=2)
    check(builder, grid, grid, Kernel.of(3))
    # one floor: every home is the same place of its group
    cells = torch.cartesian_prod(torch.arange(-8, 8), torch.arange(-8, 8), torch.tensor([3]))
    floor = grid_of_cells(cells, torch.zeros(len(cells), dtype=torch.int64), 1)
    check(builder, floor, floor, Kernel.of(3))


def test_another_layout(emulated: None) -> None:
    layout = KeyFormat(3, (10, 12, 9))
    keys = layout.pack(surface_grid(200, batch_size=2).coords)
    grid = VoxelGrid(keys, 2, 20, key_format=layout)
    for builder in SWITCHES:
        for kernel in (Kernel.of(2, 2), Kernel.of(1, 2)):
            check(builder, grid, grid.strided(kernel), kernel)


def test_keys_that_share_their_low_half(emulated: None) -> None:
    # an entry holds 32 bits of its key: sites 2^14 apart along y, or apart in x, agree in them
    steps = torch.arange(-8, 8) * (1 << 13)
    cells = torch.cartesian_prod(torch.arange(12), steps, torch.tensor([0, 1]))
    grid = grid_of_cells(cells, torch.zeros(len(cells), dtype=torch.int64), 1)
    for builder in SWITCHES:
        if builder.search != "grid":
            check(builder, grid, grid, Kernel.of(3))


@pytest.mark.parametrize("builder", SWITCHES, ids=switches)
def test_blocks_walk_over_the_rows(
    emulated: None, builder: HashTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hash_table, "SEARCH_WARPS", 8)
    hash_table._layer.cache_clear()
    grid = surface_grid(500, batch_size=2)
    check(builder, grid, grid, Kernel.of((3, 1, 3)))
    hash_table._layer.cache_clear()


def test_auto_takes_the_grid_within_its_budget() -> None:
    dense = VoxelGrid(dense_grid(8).keys, 1, 7)  # 15^3 cells by the bound, 512 sites
    assert HashTable(grid_bytes_per_site=27).search_of(dense) == "grid"
    assert HashTable(grid_bytes_per_site=26).search_of(dense) == "hash"
    boxed = VoxelGrid(dense.keys, 1, 7, box=((0, 0, 0), (7, 7, 7)))
    assert HashTable(grid_bytes_per_site=4).search_of(boxed) == "grid"
    assert HashTable(grid_bytes_per_site=4, grid_bytes=2047).search_of(boxed) == "hash"
    far = VoxelGrid(dense.keys, 1, 100_000)
    assert HashTable().search_of(far) == "hash"
    with pytest.raises(ValueError, match="over the limit grid_bytes=17179869184"):
        HashTable(search="grid").search_of(far)


def test_a_grid_is_as_long_as_the_cloud_on_every_axis(
    emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = torch.cartesian_prod(torch.tensor([-1601, 3, 1599]), torch.arange(3), torch.arange(2))
    grid = grid_of_cells(cells, torch.arange(2).repeat(9))  # one cloud at each height
    for level in (grid, grid.strided(Kernel.of(3, 2))):
        assert level.extent[1][2] <= 1
        with guarded(monkeypatch):
            built = HashTable(search="grid").build(level, level, Kernel.of(3))
        wanted = SortedSearch().build(level, level, Kernel.of(3))
        assert torch.equal(built.layout("table")[0], wanted.layout("table")[0])
    scan = VoxelGrid(grid.keys, 2, 1601, box=((-1601, 0, 0), (1599, 2, 1)))
    with pytest.raises(ValueError, match="2 clouds of 3201 x 3 x 2 cells takes 153648 bytes"):
        HashTable(search="grid", grid_bytes=150_000).search_of(scan)


def test_what_cannot_be_served_says_so() -> None:
    with pytest.raises(ValueError, match="search"):
        HashTable(search="cuckoo")
    layout = KeyFormat(1, (2, 31, 2))
    grid = VoxelGrid(torch.zeros(0, dtype=torch.int64), 1, 0, key_format=layout)
    with pytest.raises(ValueError, match="30 bits"):
        HashTable().build(grid, grid, Kernel.of(1))
    with pytest.raises(ValueError, match="CUDA device"):
        HashTable().build(surface_grid(9), surface_grid(9), Kernel.of(3))
