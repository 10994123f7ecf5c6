import itertools

import pytest
import torch

from pcnn.geometry import Kernel, VoxelGrid, grid_of_cells, quantize
from tests import oracle
from tests.clouds import surface_grid


def test_quantize_floors_negatives_and_keeps_the_inverse() -> None:
    points = torch.tensor([[-0.01, 0.0, 0.05], [0.0, 0, 0], [0.124, 0, 0.1], [-0.125, 0, 0]])
    grid = quantize(points, voxel_size=0.125)
    assert grid.coords.tolist() == [[0, -1, 0, 0], [0, 0, 0, 0]]
    assert grid.inverse.tolist() == [0, 1, 1, 0]


def test_quantize_is_exact_far_from_the_origin() -> None:
    points = torch.tensor([[5000.05, -5000.05, 0.0]], dtype=torch.float64)
    assert quantize(points, voxel_size=0.1).coords.tolist() == [[0, 50000, -50001, 0]]


def test_an_empty_cloud_is_a_grid() -> None:
    grid = quantize(torch.zeros(0, 3), voxel_size=0.1, batch_size=2)
    assert grid.rows == 0
    assert grid.batch_offsets.tolist() == [0, 0, 0]
    assert grid.strided(Kernel.of(2, 2)).rows == 0
    assert VoxelGrid.collate([quantize(torch.zeros(0, 3), voxel_size=1.0)] * 2).batch_size == 2


@pytest.mark.parametrize("stride", [2, 3, (1, 1, 2)])
def test_floor_sites(stride: int | tuple) -> None:
    grid = surface_grid(300, batch_size=3)
    kernel = Kernel.of(3, stride)
    coarse = grid.strided(kernel)
    assert [tuple(c) for c in coarse.coords.tolist()] == oracle.floor_sites(
        grid.coords.tolist(), kernel.stride
    )
    assert coarse.tensor_stride == kernel.stride
    assert grid.strided(kernel) is coarse
    twice = coarse.strided(kernel)
    steps = [s * s for s in kernel.stride]
    assert [tuple(c) for c in twice.coords.tolist()] == oracle.floor_sites(
        grid.coords.tolist(), steps
    )


@pytest.mark.parametrize(("size", "stride"), [(3, 2), (2, 2), (4, 2)])
def test_reached_sites_are_those_with_a_triplet(size: int, stride: int) -> None:
    grid = surface_grid(40, batch_size=2, downsampling="reached")
    kernel = Kernel.of(size, stride)
    assert grid.strided(Kernel.of(size)) is grid
    coarse = grid.strided(kernel)
    assert grid.strided(Kernel.of(5, stride)) is not coarse  # which reaches other sites
    low, high = (grid.coords[:, 1:] // stride).aminmax(dim=0)
    around = [range(int(a) - 3, int(b) + 4) for a, b in zip(low, high, strict=True)]
    cells = itertools.product(range(2), *around)
    candidates = [(b, x * stride, y * stride, z * stride) for b, x, y, z in cells]
    relation = kernel.size, kernel.stride, kernel.dilation, kernel.padding
    edges = oracle.triplets(grid.coords.tolist(), candidates, *relation)
    expected = sorted({candidates[i] for i, _, _ in edges})
    assert [tuple(c) for c in coarse.coords.tolist()] == expected
    # the next level is that of the same cells counted in strides
    cells = coarse.coords // torch.tensor([1, *kernel.stride])
    counted = grid_of_cells(cells[:, 1:], cells[:, 0], 2, "reached").strided(kernel)
    twice = counted.coords * torch.tensor([1, *kernel.stride])
    assert torch.equal(coarse.strided(kernel).coords, twice)


@pytest.mark.parametrize("step", [1, 3])
def test_generated_sites_are_all_that_a_transposed_kernel_reaches(step: int) -> None:
    grid = surface_grid(40)
    if step > 1:
        grid = grid.strided(Kernel.of(step, step))
    coarse = grid.strided(Kernel.of(2, 2))
    fine = coarse.generated(Kernel.of(3, 2))
    expected = {
        (b, x + a, y + c, z + d)
        for b, x, y, z in coarse.coords.tolist()
        for a in (-step, 0, step)
        for c in (-step, 0, step)
        for d in (-step, 0, step)
    }
    assert {tuple(c) for c in fine.coords.tolist()} == expected
    assert fine.tensor_stride == (step, step, step)
