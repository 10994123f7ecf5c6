"""Tensors on other sites: those that a mask keeps, or that several tensors have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.nn import (
    Conv3d,
    ConvTranspose3d,
    PlannedModule,
    add,
    align,
    cat,
    prune,
    union,
)
from tests.clouds import surface_grid


def tensor(n: int = 60, seed: int = 0, stride: int = 1) -> pcnn.SparseTensor:
    """Features of three clouds, of which the last has no site."""
    grid = replace(surface_grid(n, 2, seed=seed), batch_size=3, inverse=None)
    grid = grid.strided(Kernel.of(stride, stride))
    generator = torch.Generator().manual_seed(seed)
    return pcnn.SparseTensor(torch.randn(grid.rows, 3, generator=generator).double(), grid)


def mask_of(x: pcnn.SparseTensor, share: float = 0.6) -> Tensor:
    return torch.rand(len(x), generator=torch.Generator().manual_seed(0)) < share


def made_by_hand(x: pcnn.SparseTensor) -> pcnn.SparseTensor:
    """The same sites from their coordinates alone, of tensor stride 1."""
    coords = x.coords
    return pcnn.from_coordinates(coords[:, 1:], x.features, coords[:, 0], batch_size=x.batch_size)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_sites_of_the_mask_stay_in_order(n: int, share: float) -> None:
    x = tensor(n)
    mask = mask_of(x, share)
    y = prune(x, mask)
    assert torch.equal(y.features, x.features[mask])
    assert torch.equal(y.coords, x.coords[mask])
    assert (y.batch_size, y.tensor_stride) == (x.batch_size, x.tensor_stride)
    assert y.geometry is not x.geometry
    y.geometry.validate()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no inverse that leads back to points"):
        y.at_points()


def test_native_points() -> None:
    points = torch.rand(80, 3)
    x = pcnn.native_points(points, torch.randn(80, 2).double(), voxel_size=0.2)
    mask = mask_of(x)
    y = prune(x, mask)
    y.geometry.validate()  # type: ignore[attr-defined]
    chosen = x.geometry.chosen[mask]  # type: ignore[attr-defined]
    kept = chosen.sort().values  # in the order they came
    alone = pcnn.native_points(points[kept], x.at_points()[kept], voxel_size=0.2)
    assert torch.equal(y.geometry.chosen, chosen)  # type: ignore[attr-defined]
    assert torch.equal(y.features, alone.features)
    assert torch.equal(y.geometry.positions, alone.geometry.positions)  # type: ignore[attr-defined]
    conv, down = Conv3d(2, 3, 3).double(), Conv3d(3, 2, 2, 2).double()
    torch.testing.assert_close(conv(y).features, conv(alone).features)
    up = ConvTranspose3d(2, 4, 2, 2).double()
    assert up(down(conv(y)), y.geometry).shape == (len(y), 4)


class Tail(PlannedModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(Conv3d(4, 4, 3), Conv3d(4, 4, 2, 2))

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        out: pcnn.SparseTensor = self.net(x)
        return out


class Pruning(PlannedModule):
    """A network that decides in the middle which sites stay; the part behind plans its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.tail = Conv3d(3, 4, 3), Tail()

    def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
        y = self.first(x)
        out: pcnn.SparseTensor = self.tail(prune(y, y.features[:, 0] > 0))
        return out


def test_a_planned_network_plans_the_sites_in_front_and_its_part_those_behind() -> None:
    net, x = Pruning().double(), tensor()
    net(x)
    recipe = net.planner.recipe
    assert (len(recipe.levels), len(recipe.maps)) == (0, 1)  # not those of sites behind
    assert (len(net.tail.planner.recipe.levels), len(net.tail.planner.recipe.maps)) == (1, 2)
    x = tensor(50)
    out, y = net(x), net.first(x)
    alone = net.tail(made_by_hand(prune(y, y.features[:, 0] > 0)))
    torch.testing.assert_close(out.features, alone.features)
    out.features.sum().backward()
    assert net.first.weight.grad is not None


def test_spare_rows_never_stay() -> None:
    full = surface_grid(40)
    keys = torch.cat([full.keys, torch.full((5,), full.key_format.sentinel)])
    count = torch.tensor([full.rows], dtype=torch.int32)
    grid = VoxelGrid(keys, 1, full.bound, count=count)
    y = prune(pcnn.SparseTensor(torch.randn(len(keys), 2), grid), torch.ones(len(keys)) > 0)
    assert torch.equal(y.geometry.keys, full.keys)
    assert y.geometry.count is None


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("sizes", [(0, 0), (0, 40), (1, 1), (60, 30, 50)])
def test_a_union_is_the_sum_of_a_loop(sizes: tuple[int, ...], stride: int) -> None:
    tensors = [tensor(n, seed, stride) for seed, n in enumerate(sizes)]
    wanted: dict[tuple[int, ...], Tensor] = {}
    for part in tensors:
        for site, value in zip(map(tuple, part.coords.tolist()), part.features, strict=True):
            wanted[site] = wanted.get(site, torch.zeros(3).double()) + value
    found = union(*tensors)
    assert [tuple(site) for site in found.coords.tolist()] == sorted(wanted)
    for site, value in zip(found.coords.tolist(), found.features, strict=True):
        assert torch.equal(value, wanted[tuple(site)])
    found.geometry.validate()  # type: ignore[attr-defined]
    assert found.tensor_stride == (stride,) * 3
    assert Conv3d(3, 4, 3).double()(found).features.shape == (len(wanted), 4)


def test_a_grid_that_holds_all_sites_is_the_union() -> None:
    x = tensor(40, 0)
    part = VoxelGrid(x.geometry.keys[::3], 3, 100)
    few = pcnn.SparseTensor(x.features[::3].float(), part)
    found = union(few, x)
    assert found.geometry is x.geometry
    assert found.dtype == torch.float64
    assert align(few, x)[1] is x
    assert torch.equal(union(x, x).features, add(x, x).features)
    assert union(x).geometry is x.geometry


def test_gradients_flow_through_masks_and_unions_twice() -> None:
    x, y = tensor(20, 0), tensor(12, 1)
    mask, conv = mask_of(x), Conv3d(3, 2, 3).double()
    leaves = x.features.clone().requires_grad_(), y.features.clone().requires_grad_()

    def pruned(own: Tensor, _: Tensor) -> Tensor:
        return conv(prune(x.replace(own), mask)).features.square()

    def summed(first: Tensor, second: Tensor) -> Tensor:
        return union(x.replace(first), y.replace(second), x.replace(first)).features

    def joined(first: Tensor, second: Tensor) -> Tensor:
        return cat(*align(x.replace(first), y.replace(second))).features

    for act in (pruned, summed, joined):
        assert gradcheck(act, leaves)
        assert gradgradcheck(act, leaves)
    pruned(*leaves).sum().backward()
    assert leaves[0].grad is not None
    assert torch.equal((leaves[0].grad != 0).all(1), mask)
