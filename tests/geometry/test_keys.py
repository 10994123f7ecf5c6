"""Packed keys, cells in their order, and the slots of kernels."""

import numpy as np
import pytest
import torch

from pcnn.geometry import Kernel, grid_of_cells
from pcnn.geometry.packing import HALF, MAX_BATCH, pack, unpack
from pcnn.geometry.quantize import merged_on_host


def test_packing_keeps_coordinates_and_order_to_the_limit() -> None:
    axis = torch.tensor([-HALF, -1, 0, HALF - 1])
    coords = torch.cartesian_prod(torch.tensor([0, MAX_BATCH - 1]), axis, axis, axis)
    keys = pack(coords)
    assert torch.equal(unpack(keys).long(), coords)
    assert (keys >= 0).all()
    assert torch.equal(keys, keys.unique())  # sorted, as the coordinates are


BOX = ((-3, -2, -1), (4, 2, 2))
WIDE = ((-131071,) * 3, (131071,) * 3)


def cells_in(box: tuple, number: int, far: int = 0) -> torch.Tensor:
    generator = np.random.default_rng(number)
    found = generator.integers(box[0], np.array(box[1]) + 1, (number, 3))
    return torch.from_numpy(np.concatenate([found, box])) + far


@pytest.mark.parametrize(("clouds", "far"), [(1, 0), (3, 0), (1, 131000), (511, -131000)])
def test_cells_are_merged_in_the_order_of_their_keys(clouds: int, far: int) -> None:
    cells = cells_in(BOX, 301, far)
    batch = torch.arange(len(cells)) * 7 % clouds
    low, high = (tuple(value + far for value in side) for side in BOX)
    found = merged_on_host(cells, None if clouds == 1 else batch, clouds, (low, high))
    assert found is not None
    rows = torch.cat([batch[:, None], cells], 1)
    keys, inverse = torch.unique(pack(rows), return_inverse=True)
    assert torch.equal(found[0], keys)
    assert torch.equal(found[1], inverse)


def test_cells_far_apart_are_merged_by_their_keys() -> None:
    cells = cells_in(WIDE, 50).repeat(2, 1)
    assert merged_on_host(cells, None, 1, WIDE) is None
    grid = grid_of_cells(cells)
    found, inverse = np.unique(cells.numpy(), axis=0, return_inverse=True)
    assert np.array_equal(grid.coords[:, 1:], found)
    assert np.array_equal(grid.inverse, inverse.reshape(-1))


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "padding"),
    [
        (3, 1, 1, 1),
        (5, 1, 1, 2),
        (3, 1, 2, 2),
        (2, 1, 1, 0),
        (4, 1, 3, 0),
        (3, 2, 1, 1),
        (3, 3, 1, 0),
        (5, 4, 1, 1),
        (5, 5, 1, 0),
        (7, 5, 1, 2),
        (4, 4, 1, 0),
        (1, 2, 1, 0),
        (3, 4, 1, 1),  # shorter than the stride
        (3, 3, 2, 2),  # dilated
    ],
)
def test_odd_windows_are_centred_as_far_as_they_cover_their_cell_and_even_ones_are_left(
    size: int, stride: int, dilation: int, padding: int
) -> None:
    assert Kernel.of(size, stride, dilation).padding == (padding,) * 3
    assert Kernel.of(np.int64(size), torch.tensor(stride)).size == (size,) * 3
    assert Kernel.of((size, 3, 2), (stride, 1, 2), (dilation, 1, 1)).padding == (padding, 1, 0)


@pytest.mark.parametrize(
    ("kernel", "facts"),
    [
        (Kernel.of((1, 3, 5)), "symmetric"),
        (Kernel.of(3, padding=0), ""),
        (Kernel.of(2, 2), "strided disjoint"),
        (Kernel.of(2, 2, padding=1), "strided"),
        (Kernel.of(1), "symmetric pointwise"),
        (Kernel.of(1, 2), "strided"),
        (Kernel.of(1, padding=1), ""),
    ],
    ids=str,
)
def test_kinds_of_kernels(kernel: Kernel, facts: str) -> None:
    names = "symmetric", "strided", "disjoint", "pointwise"
    assert [name for name in names if getattr(kernel, f"is_{name}")] == facts.split()
