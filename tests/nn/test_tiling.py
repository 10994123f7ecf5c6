"""Windows whose size equals their stride tile space: every site counts in one of them, once."""

import itertools

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import Kernel
from pcnn.maps import SortedSearch
from pcnn.maps.radius import RadiusSearch
from pcnn.nn import AvgPool3d, Conv3d, ConvTranspose3d, MaxPool3d, unpool
from pcnn.ops.reduce import reduce_sum
from tests.clouds import surface_grid
from tests.maps.native_points import scan

MIXES = list(itertools.product(range(1, 6), repeat=3))
SOME = [(3, 3, 3), (5, 5, 5), (1, 3, 5), (5, 4, 3), (2, 1, 3)]


def voxels(n: int, channels: int = 1) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=2)
    assert (grid.coords[:, 1:].amin(0) < 0).all()
    generator = torch.Generator().manual_seed(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, channels, generator=generator), grid)


def counted(x: pcnn.SparseTensor, size: tuple[int, int, int]) -> pcnn.SparseTensor:
    """How many sites lie in each window."""
    layer = MaxPool3d(size)
    out = layer(x).geometry
    if out is x.geometry:
        return x
    kernel_map = x.geometry.kernel_map(out, layer.kernel, layer.engine)
    return pcnn.SparseTensor(reduce_sum(torch.ones(len(x), 1), kernel_map), out)


def windows(coords: Tensor, stride: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted coarse cells of ``[N, 4]`` rows, and the row of the one that holds each."""
    cells = coords.long().clone()
    cells[:, 1:] = cells[:, 1:].double().div(stride).floor().long()
    return torch.unique(cells, dim=0, return_inverse=True)


def test_windows_in_every_mix_equal_a_reduction_by_cells() -> None:
    x = voxels(300, 2)
    ones = x.replace(torch.ones(x.geometry.rows, 1))
    for size in MIXES:
        cells, row = windows(x.geometry.coords, torch.tensor(size))
        index = row[:, None].expand(-1, 2)
        counts = counted(ones, size)
        assert counts.features[:, 0].tolist() == row.bincount().tolist()
        assert float(counts.features.sum()) == x.geometry.rows
        assert torch.equal(counts.geometry.coords[:, 1:].long(), cells[:, 1:] * torch.tensor(size))
        for layer, reduce in ((MaxPool3d(size), "amax"), (AvgPool3d(size), "mean")):
            wanted = torch.zeros(len(cells), 2)
            wanted.scatter_reduce_(0, index, x.features, reduce, include_self=False)
            torch.testing.assert_close(layer(x).features, wanted)
        assert torch.equal(unpool(counts, x.geometry).features[:, 0], counts.features[row, 0])


def test_windows_longer_than_their_stride_leave_no_voxel_out() -> None:
    grid = surface_grid(200, batch_size=2)
    for size, stride in itertools.combinations_with_replacement(range(1, 8), 2):
        layer = MaxPool3d(stride, size)  # combinations ascend: the stride comes first
        kernel_map = SortedSearch().build(grid, grid.strided(layer.kernel), layer.kernel)
        assert len(kernel_map.in_index.unique()) == grid.rows, (size, stride)


def test_layers_of_odd_windows_reach_every_voxel_both_ways() -> None:
    x = voxels(200)
    down, up = Conv3d(1, 1, 3, 3, bias=False), ConvTranspose3d(1, 1, 3, 3, bias=False)
    torch.nn.init.ones_(down.weight)
    torch.nn.init.ones_(up.weight)
    low = down(x)
    torch.testing.assert_close(low.features.sum(), x.features.sum())
    _, row = windows(x.geometry.coords, torch.tensor([3, 3, 3]))
    torch.testing.assert_close(up(low, x).features, low.features[row])
    assert up(low).geometry.rows == 27 * low.geometry.rows  # generative: whole cells


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
def test_native_points_count_in_the_cell_they_lie_in(sites: str, where: str) -> None:
    points = scan(90, downsampling=sites)
    assert not points.one_per_cell
    assert (points.cells[:, 1:].amin(0) < 0).all()
    ones = pcnn.SparseTensor(torch.ones(points.rows, 1), points)
    values = ones.replace(torch.randn(points.rows, 2))
    for size in MIXES if where == "torch" else SOME:
        pooled = counted(ones, size)
        if size == (1, 1, 1):
            assert pooled is ones  # points of a cell do not count for each other
            continue
        cells, row = windows(points.cells, torch.tensor(size))
        assert torch.equal(pooled.geometry.cells.long(), cells)
        assert pooled.features[:, 0].tolist() == row.bincount().tolist()
        wanted = torch.zeros(len(cells), 2)
        index = row[:, None].expand(-1, 2)
        wanted.scatter_reduce_(0, index, values.features, "amax", include_self=False)
        assert torch.equal(MaxPool3d(size)(values).features, wanted)
        assert torch.equal(unpool(pooled, points).features[:, 0], pooled.features[row, 0])


def test_a_kernel_of_native_points_moves_with_its_padding() -> None:
    points = scan(90)
    search = RadiusSearch()
    for kernel, moved in (
        (Kernel.of(5, 4), 0),
        (Kernel.of(3, 2), 0),
        (Kernel.of(3, 3, padding=1), -1),
        (Kernel.of(5, 4, padding=0), 1),
    ):
        target = points.strided(kernel)
        field = search._field(points, target, kernel)
        assert torch.equal(field.centres, target.points + moved * points.voxel_size[0])
