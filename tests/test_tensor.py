"""The tensor itself: what it says about itself, moves and casts, arithmetic site by site."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.nn import Conv3d
from tests.clouds import surface_grid

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]


def tensor(channels: int = 3, n: int = 40, seed: int = 0) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=2, seed=seed)
    drawn = torch.rand(grid.rows, channels, generator=torch.Generator().manual_seed(seed))
    return pcnn.SparseTensor(drawn.double() + 0.5, grid)


def test_it_answers_for_its_features_and_sites() -> None:
    x = tensor()
    rows = x.geometry.rows
    assert (len(x), x.shape, x.dtype) == (rows, (rows, 3), torch.float64)
    assert (x.batch_size, x.tensor_stride, x.device) == (2, (1, 1, 1), torch.device("cpu"))
    assert torch.equal(x.coords, x.geometry.coords)
    assert x.coords.dtype == torch.int32
    coarse = Conv3d(3, 2, 2, 2).double()(x)
    assert coarse.tensor_stride == (2, 2, 2)
    assert (coarse.coords[:, 1:] % 2 == 0).all()
    points = pcnn.native_points(torch.rand(9, 3), torch.rand(9, 2), voxel_size=0.3)
    assert torch.equal(points.coords, points.geometry.cells)  # type: ignore[attr-defined]


def test_a_tensor_without_sites_is_still_a_tensor() -> None:
    x = pcnn.voxelize(torch.rand(0, 3), torch.rand(0, 2), voxel_size=1.0, batch_size=3)
    assert (len(x), bool(x), x.batch_size) == (0, True, 3)
    assert (x + x * torch.ones(2)).shape == (0, 2)


def test_a_batch_is_split_and_collated() -> None:
    x = tensor()
    parts = x.split()
    assert [len(part) for part in parts] == x.coords[:, 0].bincount(minlength=2).tolist()
    assert all(part.batch_size == 1 and not part.coords[:, 0].any() for part in parts)
    joined = pcnn.SparseTensor.collate(parts)
    assert torch.equal(joined.features, x.features)
    assert torch.equal(joined.geometry.keys, x.geometry.keys)
    batch = torch.tensor([0, 2, 2, 0])
    points = pcnn.native_points(torch.rand(4, 3), torch.rand(4, 2), batch, voxel_size=0.3)
    clouds = points.split()
    assert [len(cloud) for cloud in clouds] == [2, 0, 2]
    assert torch.equal(pcnn.SparseTensor.collate(clouds).coords, points.coords)
    for wrong in ([], [x, x], [parts[0], clouds[0]], [parts[0], tensor(2, 5).split()[0]]):
        with pytest.raises(ValueError, match=r"at least one|single|one kind|channels"):
            pcnn.SparseTensor.collate(wrong)


def test_casts_keep_the_geometry() -> None:
    x = tensor()
    casts = (x.half(), x.float(), x.to(torch.bfloat16), x.to("cpu", torch.float16), x.to("cpu"))
    for cast, dtype in zip(
        casts, ("float16", "float32", "bfloat16", "float16", "float64"), strict=True
    ):
        assert cast.dtype == getattr(torch, dtype)
        assert cast.geometry is x.geometry
    moved = x.to("meta", torch.float32, non_blocking=True)
    assert (moved.device.type, moved.dtype) == ("meta", torch.float32)
    assert moved.geometry.keys.device.type == "meta"


def test_detach_ends_the_gradient() -> None:
    x = tensor()
    weight = torch.tensor(2.0, requires_grad=True)
    y = x * weight
    assert y.features.requires_grad
    assert not y.detach().features.requires_grad
    assert y.detach().geometry is x.geometry


@pytest.mark.parametrize("act", OPERATORS)
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


def test_gradients_flow_to_both_sides() -> None:
    x = tensor(n=4)
    left, right = (torch.rand(len(x), 3, dtype=torch.float64, requires_grad=True) for _ in "ab")
    scale = torch.rand(3, dtype=torch.float64, requires_grad=True)

    def act(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        y, z = x.replace(a), x.replace(b + 1)
        return (c * (y - z) / z + 2 * y * z - 1).features

    assert torch.autograd.gradcheck(act, (left, right, scale))
    assert torch.autograd.gradgradcheck(act, (left, right, scale))


def test_a_joined_tensor_takes_part() -> None:
    x = tensor()
    with torch.no_grad():
        joined = pcnn.nn.cat(x, x)
        assert joined.shape == (len(x), 6)
        assert torch.equal((joined + joined).features, 2 * joined.features)


def test_it_compiles_in_one_graph() -> None:
    def act(x: pcnn.SparseTensor) -> Tensor:
        y = 2 * x - x / (x.replace(x.features[:, :1]) + x)
        return y.features * len(y)

    compiled = torch.compile(act, backend="eager", fullgraph=True)
    for n in (40, 30):
        assert torch.equal(compiled(tensor(n=n)), act(tensor(n=n)))
