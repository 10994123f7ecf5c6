import pytest
import torch
from torch.nn import functional

import pcnn
from pcnn.nn import (
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool3d,
    unpool,
)
from tests.clouds import dense_grid, surface_grid


@pytest.mark.parametrize(
    ("size", "stride"), [(2, None), (3, 2), (3, 1), (5, 4), ((1, 2, 3), (1, 2, 1))]
)
def test_maximum_of_a_dense_block_equals_torch(size: int, stride: int | None) -> None:
    layer = MaxPool3d(size, stride)
    kernel = layer.kernel
    grid = dense_grid(6)
    x = torch.randn(grid.rows, 3)
    y = layer(pcnn.SparseTensor(x, grid))
    block = x.view(6, 6, 6, 3).permute(3, 0, 1, 2)[None]
    padding = [p for p in reversed(kernel.padding) for p in (p, 6)]
    padded = functional.pad(block, padding, value=-torch.inf)
    expected = functional.max_pool3d(padded, kernel.size, kernel.stride)[0]
    i, j, k = (y.geometry.coords[:, 1:] // torch.tensor(kernel.stride)).long().unbind(1)
    torch.testing.assert_close(y.features, expected[:, i, j, k].t())


def test_global_pooling_per_cloud_and_zeros_for_an_empty_one() -> None:
    points, batch = torch.rand(60, 3), torch.arange(60) % 2 * 2  # clouds 0 and 2 of 4
    x = pcnn.voxelize(points, torch.randn(60, 3), batch, voxel_size=0.2, batch_size=4)
    rows = [x.features[x.geometry.batch_index == b] for b in range(4)]
    for layer, reduce in (
        (GlobalMaxPool(), lambda r: r.max(0).values),
        (GlobalAvgPool(), lambda r: r.mean(0)),
    ):
        out = layer(x)
        for b in (0, 2):
            torch.testing.assert_close(out[b], reduce(rows[b]))
        assert (out[[1, 3]] == 0).all()


def test_unpool_copies_the_site_above() -> None:
    grid = surface_grid(200, batch_size=2)
    pool = MaxPool3d((2, 2, 4))
    x = pcnn.SparseTensor(torch.rand(grid.rows, 1), grid)
    coarse = pool(x)
    fine = unpool(coarse, grid)
    above = {
        tuple(c): v
        for c, v in zip(coarse.geometry.coords.tolist(), coarse.features.tolist(), strict=True)
    }
    for (b, cx, cy, cz), value in zip(grid.coords.tolist(), fine.features.tolist(), strict=True):
        assert above[(b, cx // 2 * 2, cy // 2 * 2, cz // 4 * 4)] == value
    with pytest.raises(ValueError, match="does not divide"):
        unpool(x, coarse.geometry)


def test_unpool_of_native_points_sums_no_neighbours() -> None:
    points = pcnn.native_points(torch.rand(60, 3), torch.rand(60, 2), voxel_size=0.3)
    coarse = points.geometry.strided(pcnn.Kernel.of(2, 2))
    x = torch.randn(coarse.rows, 2)
    fine = unpool(pcnn.SparseTensor(x, coarse), points.geometry)
    assert coarse.inverse is not None
    assert torch.equal(fine.features, x[coarse.inverse])
    assert unpool(points, points.geometry) is points
    others = pcnn.native_points(torch.rand(60, 3), torch.rand(60, 2), voxel_size=0.3).geometry
    with pytest.raises(ValueError, match="neither lies inside the other's cells"):
        unpool(points, others)
