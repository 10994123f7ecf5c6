import pytest
import torch

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.maps import SortedSearch
from pcnn.maps.window_search import Search, SearchShape, Sites
from pcnn.maps.windowed import Windowed
from tests.clouds import surface_grid

pytestmark = pytest.mark.usefixtures("emulated")


def check(source: VoxelGrid, target: VoxelGrid, kernel: Kernel) -> None:
    built = Windowed().build(source, target, kernel)
    truth = SortedSearch().build(source, target, kernel)
    for name in ("table", "masks", "counts"):
        assert torch.equal(built.layout(name)[0].long(), truth.layout(name)[0].long()), name


@pytest.mark.parametrize("kernel", [Kernel.of(9), Kernel.of((4, 30, 9))], ids=str)
def test_kernels_of_more_slots_than_a_block_holds_at_once(kernel: Kernel) -> None:
    shape = SearchShape.of(kernel, (1, 1, 1), DEFAULT_FORMAT)
    assert shape.sizes[-1] < shape.groups
    grid = surface_grid(70, batch_size=2)
    check(grid, grid, kernel)


def test_a_column_of_slots_too_long_for_a_block_is_refused() -> None:
    grid = surface_grid(10)
    with pytest.raises(ValueError, match=r"kernel of size \(1, 1, 1001\) is too large"):
        Windowed().build(grid, grid, Kernel.of((1, 1, 1001)))


def test_more_keys_than_a_row_number_holds_are_refused() -> None:
    few, many = torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    shape = SearchShape.of(Kernel.of(3), (1, 1, 1), DEFAULT_FORMAT)
    source, target = Sites(many.expand(1 << 31), 1 << 31), Sites(few, 0)
    with pytest.raises(ValueError, match="32-bit number"):
        Search.allocate(source, target, shape)
    with pytest.raises(ValueError, match="over the budget"):
        Search.allocate(target, source, shape)


@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("side", [1, -1])
def test_queries_that_skip_more_keys_than_a_window_holds(side: int, dilation: int) -> None:
    # every second output lies in a dense wall, the next one in a thin line behind it
    wall = torch.cartesian_prod(torch.arange(2), torch.arange(70), torch.arange(6))
    line = torch.stack([torch.full((40,), 3), torch.arange(40), torch.zeros(40)], 1).long()
    grid = grid_of_cells(side * torch.cat([wall, line]))
    for size in (3, 5):
        check(grid, grid, Kernel.of(size, dilation=dilation))
    check(grid, grid.strided(Kernel.of(3, 2)), Kernel.of(3, 2))
    sparse = grid_of_cells(side * torch.cat([wall[::97], line[::13]]))
    check(grid, sparse, Kernel.of(3, dilation=dilation))
    check(sparse, grid, Kernel.of(3, dilation=dilation))
