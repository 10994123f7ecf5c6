import pytest
import torch
from torch.autograd import gradcheck

import pcnn
from pcnn.geometry import Kernel, grid_of_cells
from pcnn.geometry.find_sites import require_voxels
from tests.clouds import surface_grid


def at_level(n: int, stride: int, clouds: int = 3) -> pcnn.SparseTensor:
    """Features of voxels of a tensor stride; the last cloud has none."""
    finest = surface_grid(n, clouds - 1)
    grid = grid_of_cells(finest.coords[:, 1:], finest.coords[:, 0], clouds)
    grid = grid.strided(Kernel.of(stride, stride))
    generator = torch.Generator().manual_seed(n)
    features = torch.randn(grid.rows, 3, dtype=torch.float64, generator=generator)
    return pcnn.SparseTensor(features, grid)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_cells_have_the_features_of_their_sites(n: int, stride: int) -> None:
    x = at_level(n, stride)
    sites = require_voxels(x.geometry, "table").coords
    table = dict(zip(map(tuple, sites.tolist()), x.features, strict=True))
    cells = torch.randint(-6, 7, (300, 3), generator=torch.Generator().manual_seed(n))
    beyond = [[1 << 17, 0, 0], [0, -(1 << 17) - 1, 0], [0, 0, 1 << 40]]
    cells = torch.cat([cells, sites[:, 1:], torch.tensor(beyond)])
    batch = torch.randint(-1, 5, (len(cells),), generator=torch.Generator().manual_seed(n))
    batch[300:-3] = x.geometry.batch_index
    found, there = pcnn.lookup(x, cells, batch)
    assert found.dtype == x.features.dtype
    for row, own, hit, cloud in zip(cells.tolist(), found, there.tolist(), batch, strict=True):
        wanted = table.get((int(cloud), *row))
        assert hit == (wanted is not None)
        assert torch.equal(own, torch.zeros(3).double() if wanted is None else wanted)
    assert int(there.sum()) >= x.geometry.rows


def test_gradients_of_a_lookup_go_to_its_sites() -> None:
    x = at_level(20, 2)
    sites = require_voxels(x.geometry, "cells").coords
    cells = torch.cat([sites, sites, sites + 1]).long()

    def looked_up(features: torch.Tensor) -> torch.Tensor:
        return pcnn.lookup(x.replace(features), cells[:, 1:], cells[:, 0])[0]

    assert gradcheck(looked_up, (x.features.requires_grad_(),))
    empty = at_level(0, 1)
    blank = empty.replace(empty.features.requires_grad_())
    found, there = pcnn.lookup(blank, cells[:, 1:], cells[:, 0])
    assert not there.any()
    (grad,) = torch.autograd.grad(found.sum(), empty.features)
    assert grad.shape == (0, 3)


def test_an_absent_site_takes_no_value_of_another() -> None:
    x = at_level(20, 1)
    features = torch.full_like(x.features, torch.nan)
    found, there = pcnn.lookup(x.replace(features), torch.full((1, 3), 99), torch.tensor([0]))
    assert not there.any()
    assert not found.any()
