"""Tensors on the sites that a mask keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from pcnn.geometry import Kernel, VoxelGrid
from pcnn.geometry.packing import SENTINEL
from pcnn.nn import (
    Conv3d,
    ConvTranspose3d,
    prune,
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
    with pytest.raises(ValueError, match="no inverse that leads back to points"):
        y.at_points()


def test_native_points() -> None:
    points = torch.rand(80, 3)
    x = pcnn.native_points(points, torch.randn(80, 2).double(), voxel_size=0.2)
    mask = mask_of(x)
    y = prune(x, mask)
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


def test_spare_rows_never_stay() -> None:
    full = surface_grid(40)
    keys = torch.cat([full.keys, torch.full((5,), SENTINEL)])
    count = torch.tensor([full.rows], dtype=torch.int32)
    grid = VoxelGrid(keys, 1, full.bound, count=count)
    y = prune(pcnn.SparseTensor(torch.randn(len(keys), 2), grid), torch.ones(len(keys)) > 0)
    assert torch.equal(y.geometry.keys, full.keys)
    assert y.geometry.count is None


def test_gradients_flow_through_masks_twice() -> None:
    x = tensor(20)
    mask, conv = mask_of(x), Conv3d(3, 2, 3).double()
    leaf = x.features.clone().requires_grad_()

    def pruned(own: Tensor) -> Tensor:
        return conv(prune(x.replace(own), mask)).features.square()

    assert gradcheck(pruned, leaf)
    assert gradgradcheck(pruned, leaf)
    pruned(leaf).sum().backward()
    assert leaf.grad is not None
    assert torch.equal((leaf.grad != 0).all(1), mask)
