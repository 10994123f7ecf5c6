import pytest
import torch

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.maps import SortedSearch
from pcnn.maps.windowed import Windowed
from tests.clouds import surface, surface_grid

pytestmark = pytest.mark.usefixtures("emulated")

KERNELS = {
    "3": Kernel.of(3),
    "5": Kernel.of(5),
    "7": Kernel.of(7),
    "2": Kernel.of(2),
    "dilated": Kernel.of(3, 1, 2),
    "flat": Kernel.of((3, 1, 5)),
    "column": Kernel.of((1, 1, 9)),
    "k2s2": Kernel.of(2, 2),
    "k3s2": Kernel.of(3, 2),
    "k3s3": Kernel.of((3, 2, 1), (3, 1, 2), (1, 2, 3), (0, 1, 0)),
    "padded": Kernel.of(4, 2, 1, 1),
}


def check(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> None:
    built = Windowed().build(source, target, kernel)
    truth = SortedSearch().build(source, target, kernel)
    for name in ("table", "masks", "counts"):
        assert torch.equal(built.layout(name)[0].long(), truth.layout(name)[0].long()), name


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("n", [0, 1, 2, 33, 700])
def test_tables_masks_and_counts(name: str, n: int) -> None:
    grid = surface_grid(n, batch_size=2, seed=n)
    target = grid.strided(KERNELS[name])
    check(grid, target, KERNELS[name])


def test_from_a_coarse_level() -> None:
    grid = surface_grid(3000).strided(Kernel.of(2, 2))
    check(grid, grid, Kernel.of(3))
    check(grid, grid.strided(Kernel.of(3, 2)), Kernel.of(3, 2))


def test_a_jump_in_density_leaves_the_window() -> None:
    # a plane full of columns beside a thin line: consecutive outputs ask for thousands of inputs
    dense = torch.cartesian_prod(torch.arange(1), torch.arange(30), torch.arange(40))
    line = torch.stack([torch.ones(60), torch.arange(60) - 10, torch.zeros(60)], 1).long()
    grid = grid_of_cells(torch.cat([dense, line]))
    for kernel in (Kernel.of(3), Kernel.of(5), Kernel.of((3, 3, 1))):
        check(grid, grid, kernel)


def test_given_sites_and_empty_sides() -> None:
    source, target = surface_grid(400, seed=1), surface_grid(300, seed=2)
    check(source, target, Kernel.of(3))
    empty = grid_of_cells(surface(0))
    check(empty, target, Kernel.of(3))
    check(source, empty, Kernel.of(3))


@pytest.mark.parametrize("name", ["3", "5", "k2s2", "7"])
@pytest.mark.parametrize("n", [0, 1, 64, 65, 900])
def test_tiles_equal_those_of_torch(name: str, n: int) -> None:
    grid = surface_grid(n, seed=n)
    kernel = KERNELS[name]
    target = grid.strided(kernel)
    order, slots, counts = Windowed().build(grid, target, kernel).layout("tiles")
    wanted = SortedSearch().build(grid, target, kernel).layout("tiles")
    assert torch.equal(counts, wanted[2])
    assert torch.equal(order, wanted[0])
    for tile, count in enumerate(counts.tolist()):
        assert torch.equal(slots[tile, :count], wanted[1][tile, :count])
