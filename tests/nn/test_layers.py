"""Convolution and pooling against torch's dense layers, and by hand where torch has none."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pcnn
from pcnn.nn import (
    AvgPool3d,
    Conv3d,
    ConvTranspose3d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool3d,
    SparseConv3d,
)
from pcnn.ops import ENGINES
from pcnn.ops.reduce import reduce_sum
from tests.clouds import surface_grid
from tests.maps.native_points import scan
from tests.tolerance import DENSE

#: Engines whose maps device kernels build, emulated on a CPU.
KERNEL_ENGINES = ("torchsparse", "minuet", "spira")
ON_VOXELS = [name for name, engine in ENGINES.items() if engine.serves("voxel")]
CASES = [
    # kernel size, stride, padding, dilation, groups
    (3, 1, None, 1, 1),
    (3, 1, None, 1, 2),
    (2, 1, None, 1, 1),
    (4, 1, 1, 1, 1),
    (3, 1, None, 2, 1),
    (2, 2, None, 1, 1),
    (3, 2, None, 1, 1),
    (3, 2, 1, 2, 2),
    (3, 3, 0, 1, 1),
    (4, 2, 1, 1, 1),
    (5, 3, None, 1, 1),
    ((1, 2, 3), (1, 2, 1), None, 1, 2),
    ((3, 1, 2), 1, None, (2, 1, 1), 1),
    (1, 2, None, 1, 1),
]
#: The reference in every case, each other engine in four, which take turns.
CHECKED = [
    ("reference", CASES[i]) if engine == "reference" else (engine, CASES[(4 * number + i) % 14])
    for number, engine in enumerate(ON_VOXELS)
    for i in range(14 if engine == "reference" else 4)
]
MIXES = list(itertools.product(range(1, 6), repeat=3))
SOME = [(3, 3, 3), (5, 5, 5), (1, 3, 5), (5, 4, 3), (2, 1, 3)]


def block(volume: Tensor, stride: Any = 1) -> pcnn.SparseTensor:
    """Every cell of a volume ``[B, C, X, Y, Z]``."""
    cells = torch.ones_like(volume[:, 0]).nonzero()
    features = volume.movedim(1, -1).flatten(0, -2)
    clouds, sizes = len(volume), torch.as_tensor(stride).expand(3)
    step = torch.cat([torch.ones(1, dtype=torch.int64), sizes])
    words = {"tensor_stride": tuple(sizes.tolist()), "batch_size": clouds}
    return pcnn.from_coordinates(cells * step, features, **words)  # type: ignore[arg-type]


def voxels(n: int, channels: int = 1) -> pcnn.SparseTensor:
    grid = surface_grid(n, batch_size=2)
    assert (grid.coords[:, 1:].amin(0) < 0).all()
    generator = torch.Generator().manual_seed(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, channels, generator=generator), grid)


def check(layer: nn.Module, x: pcnn.SparseTensor, wanted: Tensor, stride: Any) -> None:
    """On torch's own sites, given, and on those of the layer, where torch has them too."""
    shape = wanted.shape[2:]
    sites = block(torch.ones_like(wanted[:, :1]), stride).geometry
    assert (layer(x, sites).dense(shape, 0) - wanted).abs().max() < DENSE
    own = layer(x)
    there = own.replace(torch.ones(len(own), 1).double()).dense(shape, 0)
    assert there.any()
    assert ((own.dense(shape, 0) - wanted) * there).abs().max() < DENSE


@pytest.mark.parametrize(("engine", "case"), CHECKED, ids=str)
def test_convolution_of_a_dense_block_equals_torch(
    engine: str, case: tuple[Any, ...], request: pytest.FixtureRequest
) -> None:
    if engine in KERNEL_ENGINES:
        request.getfixturevalue("emulated")
    groups = case[-1]
    down = Conv3d(4, 6, *case, engine=engine).double()
    kernel, x = down.kernel, torch.randn(2, 4, 6, 6, 6).double()
    weight = down.weight.view(*kernel.size, 4 // groups, 6).permute(4, 3, 0, 1, 2)
    how = kernel.stride, kernel.padding, kernel.dilation, groups
    check(down, block(x), F.conv3d(x, weight, down.bias, *how), kernel.stride)

    up = ConvTranspose3d(4, 6, *case, engine=engine).double()
    x = torch.randn(2, 4, 3, 3, 3).double()
    # torch: [C_in, C_out / groups, k, k, k]
    weight = up.weight.view(*kernel.size, 4 // groups, groups, 6 // groups)
    weight = weight.permute(4, 3, 5, 0, 1, 2).reshape(4, 6 // groups, *kernel.size)
    how = kernel.stride, kernel.padding, 0, groups, kernel.dilation
    check(up, block(x, kernel.stride), F.conv_transpose3d(x, weight, up.bias, *how), 1)


@pytest.mark.parametrize(
    ("size", "stride"), [(2, None), (3, 2), (3, 1), (5, 4), ((1, 2, 3), (1, 2, 1))]
)
def test_maximum_of_a_dense_block_equals_torch(size: Any, stride: Any) -> None:
    layer, x = MaxPool3d(size, stride), torch.randn(1, 3, 6, 6, 6).double()
    kernel, y = layer.kernel, layer(block(x))
    ends = [p for low in reversed(kernel.padding) for p in (low, 6)]
    wanted = F.max_pool3d(F.pad(x, ends, value=-torch.inf), kernel.size, kernel.stride)
    i, j, k = (y.coords[:, 1:] // torch.tensor(kernel.stride)).long().unbind(1)
    torch.testing.assert_close(y.features, wanted[0, :, i, j, k].t())


SPARSE: list[dict[str, Any]] = [
    {"kernel_size": 3},
    {"kernel_size": 2, "dilation": (1, 2, 1)},
    {"kernel_size": (1, 3, 4), "padding": (0, 0, 2)},
]


@pytest.mark.parametrize("setting", SPARSE, ids=str)
@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 4, 1)])
def test_a_convolution_that_is_not_submanifold_equals_torch(
    setting: dict[str, Any], strides: tuple[int, int, int]
) -> None:
    """On every site that it reaches, and gradients."""
    sites = surface_grid(20, batch_size=3, seed=1).coords
    cells = sites[:, 1:] * torch.tensor(strides)
    features = torch.randn(len(cells), 2).double().requires_grad_()
    x = pcnn.from_coordinates(cells, features, sites[:, 0], tensor_stride=strides, batch_size=3)
    layer = SparseConv3d(2, 3, **setting).double()
    y, kernel, room = layer(x), layer.kernel, 12
    box = [2 * room + 1] * 3, (torch.tensor(strides) * -room).tolist()
    how = {"padding": kernel.padding, "dilation": kernel.dilation}
    weight = layer.weight.view(*kernel.size, 2, 3).permute(4, 3, 0, 1, 2)
    wanted = F.conv3d(x.dense(*box), weight, layer.bias, **how)
    there = x.replace(torch.ones(len(x), 1).double()).dense(*box)
    reached = F.conv3d(there, torch.ones(1, 1, *kernel.size).double(), **how) > 0.5
    ends = [n for size in reversed(wanted.shape[2:]) for n in (0, 2 * room + 1 - size)]
    wanted, own = F.pad(wanted * reached, ends), y.dense(*box)
    assert len(y) == int(reached.sum())
    torch.testing.assert_close(own, wanted, atol=DENSE, rtol=DENSE)
    weights, leaves = torch.randn_like(own), (features, layer.weight, layer.bias)
    grads = (
        torch.autograd.grad((one * weights).sum(), leaves, retain_graph=True)
        for one in (own, wanted)
    )
    for pair in zip(*grads, strict=True):
        torch.testing.assert_close(*pair, atol=DENSE, rtol=DENSE)


def windows(coords: Tensor, stride: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted coarse cells of ``[N, 4]`` rows, and the row of the one that holds each."""
    cells = coords.long().clone()
    cells[:, 1:] = cells[:, 1:].double().div(stride).floor().long()
    return torch.unique(cells, dim=0, return_inverse=True)


@pytest.mark.parametrize("sites", ["voxels", "points"])
def test_windows_that_tile_space_hold_every_site_once(sites: str, where: str) -> None:
    if sites == "voxels":
        geometry = voxels(300).geometry
    else:
        geometry = scan(90)
        assert not geometry.one_per_cell
    assert (geometry.coords[:, 1:].amin(0) < 0).all()
    x = pcnn.SparseTensor(torch.randn(geometry.rows, 2), geometry)
    for size in MIXES if where == "torch" else SOME:
        most, mean = MaxPool3d(size), AvgPool3d(size)
        pooled = most(x)
        if size == (1, 1, 1):
            assert pooled is x  # points of a cell do not count for each other
            continue
        cells, row = windows(geometry.coords, torch.tensor(size))
        if sites == "voxels":
            assert torch.equal(pooled.coords[:, 1:].long(), cells[:, 1:] * torch.tensor(size))
        else:
            assert torch.equal(pooled.geometry.cells.long(), cells)
        kernel_map = geometry.kernel_map(pooled.geometry, most.kernel, most.engine)
        counts = reduce_sum(torch.ones(len(x), 1), kernel_map)
        assert counts[:, 0].tolist() == row.bincount().tolist()
        for layer, reduce in ((most, "amax"), (mean, "mean")):
            wanted = torch.zeros(len(cells), 2)
            index = row[:, None].expand(-1, 2)
            wanted.scatter_reduce_(0, index, x.features, reduce, include_self=False)
            torch.testing.assert_close(layer(x).features, wanted)


def test_global_pooling_per_cloud_and_zeros_for_an_empty_one() -> None:
    points, batch = torch.rand(60, 3), torch.arange(60) % 2 * 2  # clouds 0 and 2 of 4
    x = pcnn.voxelize(points, torch.randn(60, 3), batch, voxel_size=0.2, batch_size=4)
    most, mean = GlobalMaxPool()(x), GlobalAvgPool()(x)
    for b in (0, 2):
        rows = x.features[x.geometry.batch_index == b]
        torch.testing.assert_close(most[b], rows.max(0).values)
        torch.testing.assert_close(mean[b], rows.mean(0))
    assert not most[[1, 3]].any()
    assert not mean[[1, 3]].any()
