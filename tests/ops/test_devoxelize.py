import itertools
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Kernel, quantize
from pcnn.geometry.find_sites import require_voxels
from pcnn.ops import devoxelize, reduce_points, voxelize_onto
from tests.clouds import batched, cloud
from tests.tolerance import RELATIVE_RMS, relative_rms

SIZE = (0.7, 0.5, 1.0)


def at_level(n: int, stride: int | tuple[int, int, int]) -> pcnn.SparseTensor:
    """Features of voxels of a tensor stride; the third of three clouds has none."""
    points, batch = batched(n, 2)
    grid = quantize(points, batch, voxel_size=SIZE, batch_size=3)
    grid = grid.strided(Kernel.of(stride, stride))
    generator = torch.Generator().manual_seed(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, 2, generator=generator).double(), grid)


def queries(n: int) -> tuple[Tensor, Tensor]:
    batch = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(n))
    return cloud(n, seed=7, scale=1.5), batch


def looped(x: pcnn.SparseTensor, points: Tensor, batch: Tensor, interpolation: str) -> Tensor:
    sites = require_voxels(x.geometry, "table").coords
    table = dict(zip(map(tuple, sites.tolist()), x.features, strict=True))
    stride, out = x.geometry.tensor_stride, []
    edges = [size * step for size, step in zip(SIZE, stride, strict=True)]
    for point, owner in zip(points, batch.tolist(), strict=True):
        value, total = torch.zeros(x.channels).double(), 0.0
        own = [int((point[a] / edges[a]).floor()) for a in range(3)]
        for offset in itertools.product((-1, 0, 1), repeat=3):
            cell = [c + d for c, d in zip(own, offset, strict=True)]
            site = (owner, *(c * s for c, s in zip(cell, stride, strict=True)))
            weight = float(not any(offset))
            if interpolation == "trilinear":
                gaps = [abs(point[a] / edges[a] - cell[a] - 0.5) for a in range(3)]
                weight = float(torch.stack([(1 - gap).clamp(min=0) for gap in gaps]).prod())
            if site in table:
                value, total = value + weight * table[site], total + weight
        out.append(value / total if total else value)
    return torch.stack(out) if out else points.new_zeros(0, x.channels)


@pytest.mark.parametrize("interpolation", ["nearest", "trilinear"])
@pytest.mark.parametrize("stride", [1, 2, (1, 3, 2)])
@pytest.mark.parametrize("n", [0, 1, 80])
def test_points_have_the_features_of_a_loop(
    n: int, stride: int | tuple[int, int, int], interpolation: str
) -> None:
    x = at_level(n, stride)
    points, batch = queries(40)
    found = devoxelize(x, points, batch, voxel_size=SIZE, interpolation=interpolation)
    torch.testing.assert_close(found, looped(x, points, batch, interpolation))
    none = devoxelize(x, points[:0], batch[:0], voxel_size=SIZE, interpolation=interpolation)
    assert none.shape == (0, 2)


def test_a_point_of_its_own_voxels_has_their_features() -> None:
    points, batch = batched(60, 2)
    x = at_level(60, 4)
    found = devoxelize(x, points, batch, voxel_size=SIZE, interpolation="nearest")
    assert torch.equal(found, x.at_points())
    constant = x.replace(torch.full_like(x.features, 3.0))
    torch.testing.assert_close(
        devoxelize(constant, points, batch, voxel_size=SIZE), torch.full((60, 2), 3.0).double()
    )


def test_a_point_on_a_centre_has_that_voxel_alone() -> None:
    x = pcnn.from_coordinates(torch.tensor([[0, 0, 0], [1, 0, 0]]), torch.tensor([[2.0], [5.0]]))
    points = torch.tensor([[0.5, 0.5, 0.5], [1.0, 0.5, 0.5], [-0.5, 0.5, 0.5], [torch.nan] * 3])
    found = devoxelize(x, points, voxel_size=1.0)
    assert found.flatten().tolist() == [2, 3.5, 0, 0]


def test_gradients_reach_features_and_points() -> None:
    x = at_level(30, 2)
    points, batch = queries(12)
    features, points = x.features.requires_grad_(), points.requires_grad_()

    def trilinear(features: Tensor, points: Tensor) -> Tensor:
        return devoxelize(x.replace(features), points, batch, voxel_size=SIZE)

    def nearest(features: Tensor) -> Tensor:
        sites = x.replace(features)
        return devoxelize(sites, points, batch, voxel_size=SIZE, interpolation="nearest")

    assert gradcheck(trilinear, (features, points))
    assert gradgradcheck(trilinear, (features, points))
    assert gradcheck(nearest, (features,))


def test_half_precision_is_rounded_once() -> None:
    x = at_level(60, 2)
    points, batch = queries(40)
    half = x.replace(x.features.half())
    found = devoxelize(half, points.float(), batch, voxel_size=SIZE)
    assert found.dtype == torch.float16
    wanted = looped(half.replace(half.features.double()), points, batch, "trilinear")
    assert relative_rms(found, wanted) < RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("stride", [1, 2])
def test_points_are_averaged_onto_any_level(stride: int) -> None:
    grid = require_voxels(at_level(60, stride).geometry, "points")
    own, own_batch = batched(60, 2)
    features = torch.randn(60, 2).double().requires_grad_()
    made = voxelize_onto(grid, own, features, own_batch, voxel_size=SIZE)
    torch.testing.assert_close(made.features, reduce_points(features, grid))
    others, batch = queries(40)
    rows = devoxelize(
        made.replace(torch.arange(1.0, grid.rows + 1)[:, None]),
        others,
        batch,
        voxel_size=SIZE,
        interpolation="nearest",
    ).flatten()
    for name, reduction in {"mean": torch.mean, "sum": torch.sum, "max": torch.amax}.items():
        onto = partial(voxelize_onto, grid, voxel_size=SIZE, reduce=name)
        found = onto(others, features[:40], batch).features
        for row, value in enumerate(found, start=1):
            inside = features[:40][rows == row]
            wanted = reduction(inside, dim=0) if len(inside) else torch.zeros(2).double()
            torch.testing.assert_close(value, wanted)

        def act(values: Tensor, onto: Callable[..., pcnn.SparseTensor] = onto) -> Tensor:
            return onto(own[:9], values, own_batch[:9]).features.square()

        few = features[:9].detach().requires_grad_()
        assert gradcheck(act, (few,))
        assert gradgradcheck(act, (few,))
