"""Tiles as kernels make them, against those of torch; and what tiles promise."""

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap, grid_of_cells
from pcnn.geometry.slot_tiles import TILE_ROWS, tiles_of_table
from pcnn.maps import SortedSearch, Windowed
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.tiles import Tiled, row_masks, tile_views, tiles_of
from tests.clouds import surface_grid
from tests.waits import nothing_waits

KERNELS = {
    "k2s2": Kernel.of(2, 2),
    "3": Kernel.of(3),
    "5": Kernel.of(5),
    "7": Kernel.of(7),
    "flat": Kernel.of((3, 1, 5)),
}
ROWS = [0, 128, 129, 700]


def table_of(
    n: int, kernel: Kernel, transposed: bool = False, device: torch.device | str = "cpu"
) -> Tensor:
    """Neighbour table of a map onto, or of, ``n`` sites of a surface."""
    grid = surface_grid(n, seed=n).to(device)
    target = grid.strided(kernel)
    built = SortedSearch().build(grid, target, kernel)
    return (built.transpose() if transposed else built).layout("table")[0]


def defined(layout: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The defined part of tiles: columns up to the count."""
    out, slots, counts, rows = layout
    listed = torch.arange(slots.shape[1], device=slots.device) < counts[:, None]
    return out, slots[listed], counts, rows[listed]


def check_equal(found: tuple[Tensor, ...], table: Tensor, sections: int) -> None:
    wanted = tiles_of_table(table, sections)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype == torch.int32
        assert one.data_ptr() % 16 == 0
    for one, other in zip(defined(found), defined(wanted), strict=True):
        assert torch.equal(one, other)


def check_promises(layout: tuple[Tensor, ...], table: Tensor, sections: int) -> None:
    """Rows and triplets are there once, tiles list what their rows fill, long ones come first."""
    out, slots, counts, rows = layout
    n, volume = table.shape
    tiles = sections * -(-n // TILE_ROWS)
    assert out.shape == (tiles, TILE_ROWS)
    assert slots.shape == (tiles, -(-volume // sections))
    assert rows.shape == (*slots.shape, TILE_ROWS)
    assert (counts.diff() <= 0).all()
    found = torch.full_like(table, -1)
    seen = torch.zeros(n, volume, dtype=torch.int64)
    for tile, count in enumerate(counts.tolist()):
        places = out[tile].long()
        mine, listed = places[places >= 0], slots[tile, :count].long()
        assert (listed.diff() > 0).all()
        assert (listed % sections == listed[:1] % sections).all()
        block = rows[tile, :count, places >= 0].t()  # [rows, slots]
        assert (rows[tile, :count][:, places < 0] == -1).all()
        assert (block >= 0).any(0).all()
        assert sections == 1 or (block >= 0).any(1).all()
        found[mine[:, None], listed] = block
        seen[mine[:, None], listed] += 1
    assert torch.equal(found, table)
    assert (seen[table >= 0] == 1).all()
    placed = out[out >= 0].long()
    if sections == 1:
        assert placed.sort().values.tolist() == list(range(n))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n", ROWS)
def test_tiles_equal_those_of_torch_and_hold_every_triplet_once(
    device: torch.device, name: str, n: int
) -> None:
    n *= 100 if n > 129 and device.type == "cuda" else 1
    for transposed in (False, True):
        table = table_of(n, KERNELS[name], transposed, device)
        masks = row_masks(table)
        for sections in (1, KERNELS[name].size[2]):
            (found,) = tiles_of([Tiled(table, masks, sections)])
            check_equal(found, table, sections)
            if device.type == "cpu":
                check_promises(found, table, sections)


@pytest.mark.usefixtures("emulated")
def test_rows_without_slots_have_a_place_in_the_one_section_only() -> None:
    table = torch.full((300, 27), -1, dtype=torch.int32)
    table[5, 2] = 7
    table[200, 26] = 9  # the mask of rank 2^27 - 1
    for sections in (1, 3):
        (found,) = tiles_of([Tiled(table, row_masks(table), sections)])
        check_equal(found, table, sections)
        check_promises(found, table, sections)
        assert int((found[0] >= 0).sum()) == (300 if sections == 1 else 2)


@pytest.mark.usefixtures("emulated", "reversed_blocks")
@pytest.mark.parametrize("sections", [1, 5])
def test_blocks_may_run_in_descending_order(sections: int) -> None:
    tables = [table_of(700, KERNELS["5"]), table_of(300, KERNELS["flat"])]
    found = tiles_of([Tiled(table, row_masks(table), sections) for table in tables])
    for layout, table in zip(found, tables, strict=True):
        check_equal(layout, table, sections)


@pytest.mark.usefixtures("emulated")
def test_more_tiles_than_a_group_counts() -> None:
    rows = TILE_ROWS * 300
    patterns = torch.randint(0, 2, (40, 6), dtype=torch.int32)
    table = torch.where(
        patterns[torch.randint(0, 40, (rows,))] > 0, torch.arange(rows)[:, None], -1
    ).to(torch.int32)
    for sections in (1, 3):
        (found,) = tiles_of([Tiled(table, row_masks(table), sections)])
        check_equal(found, table, sections)


@pytest.mark.usefixtures("emulated")
def test_more_maps_than_a_launch_takes() -> None:
    whole = [table_of(200, kernel) for kernel in KERNELS.values()]
    planes = [kernel.size[2] for kernel in KERNELS.values()]
    maps = []
    for number in range(40):
        table = whole[number % 5][: 200 >> number % 7]
        sections = planes[number % 5] if number % 2 else 1
        maps.append(Tiled(table, row_masks(table), sections))
    for layout, one in zip(tiles_of(maps), maps, strict=True):
        check_equal(layout, one.table, one.sections)


@pytest.mark.usefixtures("emulated")
def test_slots_beyond_what_a_key_holds() -> None:
    grid = surface_grid(150)
    for size, sections in (((9, 9, 9), 9), ((1, 3, 31), 31)):
        (table,) = SortedSearch().build(grid, grid, Kernel.of(size)).layout("table")
        for number in (1, sections):
            (found,) = tiles_of([Tiled(table, row_masks(table), number)])
            check_equal(found, table, number)


@pytest.mark.usefixtures("emulated")
def test_maps_hold_tiles_of_planes_if_they_know_their_kernel() -> None:
    grid, kernel = surface_grid(200), Kernel.of((3, 3, 5))
    built = grid.map_to(grid, kernel, SortedSearch())
    (table,) = built.layout("table")
    native = KernelMap.from_table(table, grid.rows, symmetric=True, derive=DEVICE_LAYOUTS)
    assert native.layout("section_tiles") is native.layout("tiles")  # not set for this map
    native = KernelMap.from_table(table, grid.rows, symmetric=True, derive=DEVICE_LAYOUTS)
    native.edges.layouts["kernel_size", False] = built.layout("kernel_size")
    tile_views([(native.transpose(), "section_tiles"), (native, "section_tiles")])
    assert native.has("section_tiles")
    assert not native.transpose().has("section_tiles")
    check_equal(native.layout("section_tiles"), table, 5)
    for view in (native, built):
        view.layout("section_tiles")
        check_promises_of_view(view.transpose())


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("n", [0, 400])
def test_sparse_maps_of_large_kernels_are_cut_into_sections(n: int) -> None:
    for builder in (Windowed(), SortedSearch()):
        block = torch.cartesian_prod(*[torch.arange(6)] * 3)
        sparse, dense = surface_grid(n), grid_of_cells(block)
        views = [
            grid.map_to(grid, Kernel.of(size), builder)
            for grid, size in ((sparse, 5), (dense, 5), (sparse, 3))
        ]
        if builder.name == "windowed":
            tile_views([(view, "fitting_tiles") for view in views])
        names = ["section_tiles" if n else "tiles", "tiles", "tiles"]
        for view, name in zip(views, names, strict=True):
            assert view.layout("fitting_tiles") is view.layout(name)
            assert view.has("section_tiles") == (name == "section_tiles")


def check_promises_of_view(mirrored: KernelMap) -> None:
    """Slots of a mirrored view fall, everything else stays the same."""
    out, slots, counts, rows = mirrored.layout("section_tiles")
    turned = slots.clone()
    for tile, count in enumerate(counts.tolist()):
        turned[tile, :count] = slots[tile, :count].flip(0)
        rows = rows.clone()
        rows[tile, :count] = rows[tile, :count].flip(0)
    check_promises((out, turned, counts, rows), mirrored.layout("table")[0], 5)


@pytest.mark.gpu
def test_many_maps_in_one_sort() -> None:
    sizes = [100_000, 30_000, 8000, 129, 128, 1, 0]
    tables = [table_of(n, kernel, device="cuda") for kernel in KERNELS.values() for n in sizes]
    maps = [Tiled(t, row_masks(t), 1 + number % 3) for number, t in enumerate(tables)]
    for layout, one in zip(tiles_of(maps), maps, strict=True):
        check_equal(layout, one.table, one.sections)


@pytest.mark.gpu
def test_two_runs_give_identical_bits_without_waiting() -> None:
    table = table_of(100_000, KERNELS["5"], device="cuda")
    masks = row_masks(table)
    (first,) = tiles_of([Tiled(table, masks, 5)])
    with nothing_waits():
        runs = [tiles_of([Tiled(table, masks, 5)])[0] for _ in range(3)]
        tiles_of_table(table, 5)
    for run in runs:
        for one, other in zip(defined(run), defined(first), strict=True):
            assert torch.equal(one, other)
