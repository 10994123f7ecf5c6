"""Tiles of scans on a device, against those of torch; the same sizes as a network's levels."""

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap
from pcnn.geometry.slot_tiles import tiles_of_table
from pcnn.maps import Windowed
from pcnn.maps.tiles import Tiled, row_masks, tiles_of
from tests.clouds import surface_grid
from tests.maps.test_tiles import check_equal, defined

pytestmark = pytest.mark.gpu
KERNELS = [Kernel.of(2, 2), Kernel.of(3), Kernel.of(5), Kernel.of((3, 1, 7))]


def built(kernel: Kernel, n: int, seed: int = 0) -> KernelMap:
    grid = surface_grid(n, 2, seed).to("cuda")
    return Windowed().build(grid, grid.strided(kernel), kernel)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 128, 129, 100_000])
def test_tiles_of_kernels_equal_those_of_torch(kernel: Kernel, n: int) -> None:
    for view in (built(kernel, n), built(kernel, n).transpose()):
        (table,) = view.layout("table")
        for sections in (1, kernel.size[2]):
            (found,) = tiles_of([Tiled(table, row_masks(table), sections)])
            check_equal(found, table, sections)


def test_many_maps_in_one_sort() -> None:
    sizes = [100_000, 30_000, 8000, 129, 128, 1, 0]
    tables = [built(kernel, n).layout("table")[0] for kernel in KERNELS for n in sizes]
    maps = [Tiled(t, row_masks(t), 1 + number % 3) for number, t in enumerate(tables)]
    for layout, one in zip(tiles_of(maps), maps, strict=True):
        check_equal(layout, one.table, one.sections)


def test_two_runs_give_identical_bits_without_waiting() -> None:
    (table,) = built(Kernel.of(5), 100_000).layout("table")
    masks = row_masks(table)
    (first,) = tiles_of([Tiled(table, masks, 5)])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runs = [tiles_of([Tiled(table, masks, 5)])[0] for _ in range(3)]
        tiles_of_table(table, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for run in runs:
        for one, other in zip(defined(run), defined(first), strict=True):
            assert torch.equal(one, other)
