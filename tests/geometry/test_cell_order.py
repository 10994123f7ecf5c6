import numpy as np
import pytest
import torch

from pcnn.geometry import grid_of_cells
from pcnn.geometry.packing import DEFAULT_FORMAT
from pcnn.geometry.quantize import cell_order

BOX = ((-3, -2, -1), (4, 2, 2))
WIDE = ((-131071,) * 3, (131071,) * 3)


def cells_in(box: tuple, number: int, far: int = 0) -> torch.Tensor:
    generator = np.random.default_rng(number)
    found = generator.integers(box[0], np.array(box[1]) + 1, (number, 3))
    return torch.from_numpy(np.concatenate([found, box])) + far


@pytest.mark.parametrize(("clouds", "far"), [(1, 0), (3, 0), (1, 131000), (511, -131000)])
def test_cells_rise_and_points_of_one_keep_their_order(clouds: int, far: int) -> None:
    cells = cells_in(BOX, 301, far)
    batch = torch.arange(len(cells)) * 7 % clouds
    low, high = (tuple(value + far for value in side) for side in BOX)
    found = cell_order(cells, None if clouds == 1 else batch, clouds, (low, high))
    assert found is not None
    rows = torch.cat([batch[:, None], cells], 1)
    assert found.order.tolist() == sorted(range(len(rows)), key=lambda p: rows[p].tolist())
    keys, inverse = torch.unique(DEFAULT_FORMAT.pack(rows), return_inverse=True)
    merged, of_point = found.merged()
    assert torch.equal(found.keys(merged, DEFAULT_FORMAT), keys)
    assert torch.equal(of_point, inverse)


def test_no_points_have_an_order() -> None:
    found = cell_order(torch.zeros(0, 3), None, 1, ((0, 0, 0), (0, 0, 0)))
    assert found is not None
    assert [len(part) for part in found.merged()] == [0, 0]


def test_cells_far_apart_are_merged_by_their_keys() -> None:
    cells = cells_in(WIDE, 50).repeat(2, 1)
    assert cell_order(cells, None, 1, WIDE) is None
    grid = grid_of_cells(cells)
    found, inverse = np.unique(cells.numpy(), axis=0, return_inverse=True)
    assert np.array_equal(grid.coords[:, 1:], found)
    assert np.array_equal(grid.inverse, inverse.reshape(-1))
