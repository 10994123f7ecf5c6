from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.nn import Conv3d, add, align, cat, union
from tests.clouds import surface_grid


def tensor(n: int, seed: int, stride: int = 1) -> pcnn.SparseTensor:
    """Features of three clouds, of which the last has no site."""
    grid = replace(surface_grid(n, 2, seed=seed), batch_size=3, inverse=None)
    grid = grid.strided(Kernel.of(stride, stride))
    generator = torch.Generator().manual_seed(seed)
    return pcnn.SparseTensor(torch.randn(grid.rows, 2, generator=generator).double(), grid)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("sizes", [(0, 0), (0, 40), (1, 1), (60, 30, 50)])
def test_a_union_is_the_sum_of_a_loop(sizes: tuple[int, ...], stride: int) -> None:
    tensors = [tensor(n, seed, stride) for seed, n in enumerate(sizes)]
    wanted: dict[tuple[int, ...], Tensor] = {}
    for part in tensors:
        for site, value in zip(map(tuple, part.coords.tolist()), part.features, strict=True):
            wanted[site] = wanted.get(site, torch.zeros(2).double()) + value
    found = union(*tensors)
    assert [tuple(site) for site in found.coords.tolist()] == sorted(wanted)
    for site, value in zip(found.coords.tolist(), found.features, strict=True):
        assert torch.equal(value, wanted[tuple(site)])
    assert isinstance(found.geometry, VoxelGrid)
    found.geometry.validate()
    assert found.tensor_stride == (stride,) * 3
    assert Conv3d(2, 4, 3).double()(found).features.shape == (len(wanted), 4)


def test_gradients_of_a_union_go_to_every_tensor() -> None:
    x, y = tensor(20, 0), tensor(12, 1)
    features = x.features.requires_grad_(), y.features.requires_grad_()

    def summed(first: Tensor, second: Tensor) -> Tensor:
        return union(x.replace(first), y.replace(second), x.replace(first)).features

    def joined(first: Tensor, second: Tensor) -> Tensor:
        return cat(*align(x.replace(first), y.replace(second))).features

    for function in (summed, joined):
        assert gradcheck(function, features)
        assert gradgradcheck(function, features)


def test_tensors_on_the_union_meet_in_layers_of_one_geometry() -> None:
    x, y = tensor(40, 0), tensor(30, 1)
    first, second = align(x, y)
    assert first.geometry is second.geometry
    assert torch.equal((first + second).features, union(x, y).features)
    there = pcnn.lookup(first, x.coords[:, 1:], x.coords[:, 0])
    assert torch.equal(there[0], x.features)
    assert torch.count_nonzero(first.features.any(1)) == len(x)


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
