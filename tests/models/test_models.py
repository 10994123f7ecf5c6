"""Every network: its size, clouds of any size, both geometries, fused inference."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcnn
from pcnn.geometry import grid_of_cells
from pcnn.models import (
    SPVCNN,
    MinkUNet42,
    ResNet18,
    ResUNetBN2C,
    SparseResNet21,
    SparseResNetLarge,
    SparseResNetSegmentation,
)
from pcnn.nn.conv import convolutions
from tests.clouds import surface_grid
from tests.nn.fusing import shaken

Make = Callable[..., nn.Module]
PUBLISHED = {
    # convolution weights, convolutions with K > 1
    "minkunet42": (MinkUNet42, 21_709_184, 42),
    "sparse_resnet21": (SparseResNet21, 2_691_264, 21),
    "sparse_resnet_large": (SparseResNetLarge, 12_232_000, 20),
    "resunet_bn2c": (ResUNetBN2C, 8_748_960, 21),
    "resunet_bn2c_7": (partial(ResUNetBN2C, first_kernel=7), 8_755_936, 21),
}


def around(head: Make, backbone: Make, **options: Any) -> Make:
    def make(out_channels: int, engine: Any = None) -> nn.Module:
        return head(backbone(width=0.25, engine=engine), out_channels, **options)

    return make


SEGMENTERS: dict[str, Make] = {
    "minkunet": partial(MinkUNet42, width=0.125),
    "resunet": partial(ResUNetBN2C, in_channels=4, width=0.25, normalize_features=False),
    "sparse_resnet": around(SparseResNetSegmentation, SparseResNet21, hidden=16),
    "sparse_resnet_large": around(SparseResNetSegmentation, SparseResNetLarge, hidden=16),
    "spvcnn": partial(SPVCNN, width=0.125),
}
CLASSIFIERS: dict[str, Make] = {"resnet18": partial(ResNet18, width=0.125)}
segmenters = pytest.mark.parametrize("make", SEGMENTERS.values(), ids=SEGMENTERS.keys())
classifiers = pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS.keys())


def on(grid: pcnn.VoxelGrid, dtype: torch.dtype = torch.float32) -> pcnn.SparseTensor:
    return pcnn.SparseTensor(torch.randn(grid.rows, 4, dtype=dtype), grid)


def rows(y: Any) -> Tensor:
    return y if isinstance(y, Tensor) else y.features


@pytest.mark.parametrize(("make", "weights", "count"), PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_sizes(make: Make, weights: int, count: int) -> None:
    layers = convolutions(make()).values()
    assert sum(layer.weight.numel() for layer in layers) == weights
    assert sum(layer.kernel.volume > 1 for layer in layers) == count


@segmenters
@pytest.mark.parametrize("n", [0, 1, 200])
def test_segmenters_train_on_clouds_of_any_size(make: Make, n: int) -> None:
    model, x = make(out_channels=5), on(surface_grid(n, batch_size=2))
    y = model(x)
    assert y.geometry is x.geometry
    assert y.features.shape == (len(x), 5)
    y.features.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@segmenters
def test_clouds_neither_touch_nor_know_where_they_stand(make: Make) -> None:
    model = make(out_channels=3).eval()
    clouds = [on(surface_grid(n, seed=n)) for n in (60, 150)]
    joined = pcnn.SparseTensor.collate(clouds)
    alone = torch.cat([model(x).features for x in clouds])
    torch.testing.assert_close(model(joined).features, alone, rtol=1e-4, atol=1e-5)
    x = clouds[1]
    moved = grid_of_cells(x.coords[:, 1:].long() + torch.tensor([32, -64, 16]))
    y = model(pcnn.SparseTensor(x.features, moved)).features
    torch.testing.assert_close(y, model(x).features)


@classifiers
@pytest.mark.parametrize("n", [0, 1, 200])
def test_classifiers_give_one_row_a_cloud(make: Make, n: int) -> None:
    y = make(out_channels=7)(on(surface_grid(n, batch_size=3)))
    assert y.shape == (3, 7)
    y.sum().backward()
    assert y.isfinite().all()


@pytest.mark.parametrize("name", [*SEGMENTERS, "resnet18"])
def test_inference_fuses_and_gives_the_same(name: str) -> None:
    model = shaken((SEGMENTERS | CLASSIFIERS)[name](out_channels=5).double())
    x = on(surface_grid(200, batch_size=2), torch.float64)
    expected = rows(model(x)).detach()
    folded = [m._folded for m in model.eval().modules() if hasattr(m, "_folded")]
    assert not any(f._kept for f in folded)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        y = rows(model(x))
    assert folded
    assert all(f._kept for f in folded)
    assert list(before) == list(model.state_dict())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    torch.testing.assert_close(y, expected)
