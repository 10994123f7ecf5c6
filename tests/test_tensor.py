"""The tensor itself: what it says about itself, arithmetic site by site, and dense volumes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import pcnn
from tests.clouds import surface_grid


def tensor(channels: int = 3, n: int = 40, seed: int = 0) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=2, seed=seed)
    drawn = torch.rand(grid.rows, channels, generator=torch.Generator().manual_seed(seed))
    return pcnn.SparseTensor(drawn.double() + 0.5, grid)


def test_clouds_are_joined_in_order() -> None:
    x, one = (
        tensor(),
        pcnn.SparseTensor(torch.rand(30, 3), surface_grid(50).at_rows(torch.arange(30))),
    )
    several = pcnn.voxelize(torch.rand(9, 3), torch.rand(9, 3), voxel_size=0.4)
    points = pcnn.native_points(torch.rand(4, 3), torch.rand(4, 3), voxel_size=0.3)
    joined = pcnn.SparseTensor.collate([one, several])
    assert torch.equal(joined.features, torch.cat([one.features, several.features]))
    assert torch.equal(joined.coords[:, 1:], torch.cat([one.coords, several.coords])[:, 1:])
    assert joined.geometry.batch_offsets.tolist() == [0, 30, 30 + len(several)]
    few = pcnn.voxelize(torch.rand(9, 3), torch.rand(9, 2), voxel_size=0.4)
    for wrong in ([], [x, x], [one, points], [one, few]):
        with pytest.raises(ValueError, match=r"at least one|single|one kind|channels"):
            pcnn.SparseTensor.collate(wrong)


@pytest.mark.parametrize("act", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_arithmetic_is_that_of_the_features(act: Callable[[Any, Any], Any]) -> None:
    x, rows = tensor(), tensor().geometry.rows
    one, all_sites = torch.rand(rows, 1).double() + 1, torch.rand(rows, 3).double() + 1
    others = (2, 0.5, np.float32(1.5), torch.tensor(3.0), torch.tensor([1.0, 2, 3]), one, all_sites)
    for other in others:
        for left, right in ((x, other), (other, x)):
            y = act(left, right)
            assert type(y) is pcnn.SparseTensor
            assert y.geometry is x.geometry
            plain = (x.features if side is x else side for side in (left, right))
            torch.testing.assert_close(y.features, act(*plain), rtol=0, atol=0)
    gate = x.replace(one)
    assert torch.equal(act(x, gate).features, act(x.features, one))
    assert torch.equal(act(gate, x).features, act(one, x.features))
    assert torch.equal((-x).features, -x.features)


# --- dense volumes, against a loop over sites --------------------------------------------------


def scattered(n: int = 60, stride: tuple[int, int, int] = (1, 1, 1)) -> pcnn.SparseTensor:
    """Sites around zero in clouds 0 and 2 of 3."""
    generator = torch.Generator().manual_seed(n)
    cells = torch.randint(-4, 5, (n, 3), generator=generator) * torch.tensor(stride)
    batch = torch.randint(0, 2, (n, 1), generator=generator) * 2
    features = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    coords = torch.cat([batch, cells], dim=1)
    return pcnn.from_coordinates(coords, features, tensor_stride=stride, batch_size=3)


def by_hand(x: pcnn.SparseTensor, shape: tuple[int, ...], low: tuple[int, ...]) -> Tensor:
    volume = torch.zeros(x.batch_size, x.channels, *shape, dtype=x.dtype)
    for (b, *site), row in zip(x.coords.tolist(), x.features, strict=True):
        place = [(c - o) // t for c, o, t in zip(site, low, x.tensor_stride, strict=True)]
        if all(0 <= p < s for p, s in zip(place, shape, strict=True)):
            volume[b, :, place[0], place[1], place[2]] = row
    return volume


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_every_site_has_its_cell(n: int, stride: tuple[int, int, int]) -> None:
    x = scattered(n, stride)
    if n:
        low = tuple(x.coords[:, 1:].amin(0).tolist())
        reach = (x.coords[:, 1:].amax(0) - torch.tensor(low)) // torch.tensor(stride) + 1
        assert torch.equal(x.dense(), by_hand(x, tuple(reach.tolist()), low))
        assert torch.equal(x.dense(shape=4), by_hand(x, (4, 4, 4), low))
    else:
        assert x.dense().shape == (3, 2, 0, 0, 0)
    # a box that leaves sites out, and one with room
    for shape, corner in (((3, 2, 4), (-4, 0, -2)), ((20, 21, 22), (-20, -16, -12))):
        given = tuple(c * t for c, t in zip(corner, stride, strict=True))
        volume = x.dense(shape, given)
        assert torch.equal(volume, by_hand(x, shape, given))


def test_gradients_of_arithmetic_and_volumes() -> None:
    x, z = tensor(n=4), scattered(12)
    left, right = (torch.rand(len(x), 3, dtype=torch.float64, requires_grad=True) for _ in "ab")
    scale = torch.rand(3, dtype=torch.float64, requires_grad=True)

    def act(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y, z = x.replace(a), x.replace(b + 1)
        return (c * (y - z) / z + 2 * y * z - 1).features

    def there(features: Tensor) -> Tensor:
        return z.replace(features).dense((5, 6, 7), -2)

    leaf = z.features.clone().requires_grad_()
    for function, leaves in ((act, (left, right, scale)), (there, (leaf,))):
        assert gradcheck(function, leaves)
        assert gradgradcheck(function, leaves)
