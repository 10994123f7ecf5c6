"""Layers of `pcnn.compat.spconv` against torch's dense layers, values and all gradients."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import pcnn.compat.spconv.pytorch as spconv
from tests.tolerance import DENSE

SHAPES = {1: [23], 2: [9, 7], 3: [7, 6, 5]}


def cells(axes: int, many: int, seed: int = 0, ordered: bool = False) -> Tensor:
    """Cells of two clouds, each once, in any order."""
    draw = torch.Generator().manual_seed(seed)
    shape = SHAPES[axes]
    columns = [torch.randint(0, n, (many,), generator=draw) for n in (2, *shape)]
    unique = torch.unique(torch.stack(columns, 1), dim=0).int()
    return unique if ordered else unique[torch.randperm(len(unique), generator=draw)]


def tensor(axes: int, channels: int, many: int = 40, **how: Any) -> spconv.SparseConvTensor:
    indices = cells(axes, many, **how)
    features = torch.randn(len(indices), channels, generator=torch.Generator().manual_seed(1))
    return spconv.SparseConvTensor(features.double().requires_grad_(), indices, SHAPES[axes], 2)


def at(volume: Tensor, indices: Tensor) -> Tensor:
    """``[N, C]`` of the cells of a volume."""
    return volume.movedim(1, -1)[tuple(indices.long().unbind(1))]


def convolved(
    x: spconv.SparseConvTensor,
    weight: Tensor,
    bias: Tensor | None,
    transposed: bool = False,
    **setting: Any,
) -> tuple[Tensor, Tensor]:
    """Torch's dense output, without bias at sites that are not reached, and the sites."""
    axes, krsc = len(x.spatial_shape), weight.movedim(-1, 1)  # [C_out, C_in, *kernel]
    layer = getattr(F, f"conv{'_transpose' if transposed else ''}{axes}d")
    out = layer(x.dense(), krsc.transpose(0, 1) if transposed else krsc, **setting)
    there = x.replace_feature(torch.ones_like(x.features[:, :1])).dense()
    reached = layer(there, torch.ones_like(krsc[:1, :1]), **setting) > 0.5
    if bias is not None:
        out = out + bias.view(1, -1, *[1] * axes)
    return out * reached, reached[:, 0].nonzero()


def check_gradients(layer: torch.nn.Module, x: Tensor, out: Tensor, expected: Tensor) -> None:
    """Gradients of a random sum of all cells, to features, weight and bias."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(out)
    leaves = [x, *layer.parameters()]
    own = torch.autograd.grad((out * weights).sum(), leaves)
    theirs = torch.autograd.grad((expected * weights).sum(), leaves)
    for a, b in zip(own, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=DENSE, rtol=DENSE)


CONV = [
    (3, {"kernel_size": 3, "stride": 1, "padding": 1}),
    (3, {"kernel_size": 2, "stride": 2, "padding": 0}),
    (3, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (3, {"kernel_size": 3, "stride": 3, "padding": 2}),
    (3, {"kernel_size": 2, "stride": 1, "padding": 2, "dilation": 3}),
    (3, {"kernel_size": (3, 1, 2), "stride": (2, 1, 3), "padding": (0, 0, 1)}),
    (3, {"kernel_size": 1, "stride": 2, "padding": 0, "bias": False}),
    (2, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (2, {"kernel_size": (4, 3), "stride": 1, "padding": (2, 0), "bias": False}),
    (1, {"kernel_size": 5, "stride": 2, "padding": 1, "dilation": 2}),
]
TRANSPOSED = [
    (3, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (3, {"kernel_size": 2, "stride": 3, "padding": 0}),
    (3, {"kernel_size": 3, "stride": 1, "padding": 2, "bias": False}),
    (2, {"kernel_size": (3, 2), "stride": (3, 2), "padding": (2, 0)}),
    (1, {"kernel_size": 4, "stride": 2, "padding": 1}),
]


@pytest.mark.parametrize(
    ("transposed", "axes", "setting"),
    [*((False, *case) for case in CONV), *((True, *case) for case in TRANSPOSED)],
    ids=str,
)
def test_convolution_is_that_of_torch(transposed: bool, axes: int, setting: dict[str, Any]) -> None:
    name = "SparseConvTranspose" if transposed else "SparseConv"
    layer = getattr(spconv, f"{name}{axes}d")(3, 4, **setting).double()
    x = tensor(axes, 3, many=20 if transposed else 40)
    out = layer(x)
    given = {n: value for n, value in setting.items() if n not in ("kernel_size", "bias")}
    expected, sites = convolved(x, layer.weight, layer.bias, transposed, **given)
    assert out.spatial_shape == list(expected.shape[2:])
    assert torch.equal(out.indices.long(), sites)
    torch.testing.assert_close(out.dense(), expected, atol=DENSE, rtol=DENSE)
    check_gradients(layer, x.features, out.dense(), expected)


@pytest.mark.parametrize(
    ("axes", "size", "dilation"),
    [(3, 3, 1), (3, (1, 3, 5), (1, 2, 1)), (3, 1, 1), (2, 5, 1), (1, 3, 4)],
)
@pytest.mark.parametrize("ordered", [True, False])
def test_submanifold_convolution_keeps_rows(
    axes: int, size: Any, dilation: Any, ordered: bool
) -> None:
    """Whatever its padding and stride say, and rows come in the order of the input."""
    make = getattr(spconv, f"SubMConv{axes}d")
    layer = make(3, 4, size, stride=2, padding=1, dilation=dilation, indice_key="a").double()
    x = tensor(axes, 3, ordered=ordered)
    out = layer(x)
    assert out.indices is x.indices
    assert out.spatial_shape == x.spatial_shape
    sizes, steps = layer.kernel_size, layer.dilation
    centre = [d * (k - 1) // 2 for k, d in zip(sizes, steps, strict=True)]
    weight = layer.weight
    if layer.conv1x1:  # the memory is [C_in, C_out]
        weight = weight.reshape(3, 4).t().reshape(weight.shape)
    expected, _ = convolved(x, weight, layer.bias, padding=centre, dilation=steps)
    torch.testing.assert_close(out.features, at(expected, x.indices), atol=DENSE, rtol=DENSE)
    check_gradients(layer, x.features, out.features, at(expected, x.indices))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("pooled", [False, True])
def test_inverse_convolution_returns_to_the_rows_of_the_input(axes: int, pooled: bool) -> None:
    if pooled:
        down = getattr(spconv, f"SparseMaxPool{axes}d")(3, 2, 1, indice_key="d")
    else:
        down = getattr(spconv, f"SparseConv{axes}d")(3, 3, 3, 2, 1, indice_key="d").double()
    up = getattr(spconv, f"SparseInverseConv{axes}d")(3, 4, 3, indice_key="d").double()
    x = tensor(axes, 3)
    middle = down(x)
    coarse = middle.features.detach().requires_grad_()
    out = up(middle.replace_feature(coarse))
    assert out.indices is x.indices
    assert out.spatial_shape == x.spatial_shape
    assert out.indice_dict is middle.indice_dict
    more = [(n + 2 - 3) % 2 for n in SHAPES[axes]]  # cells that no window of the volume ends in
    how = {"stride": 2, "padding": 1, "output_padding": more}
    middle = middle.replace_feature(coarse)
    expected, _ = convolved(middle, up.weight, up.bias, True, **how)
    expected = at(expected, x.indices)
    torch.testing.assert_close(out.features, expected, atol=DENSE, rtol=DENSE)
    check_gradients(up, coarse, out.features, expected)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("setting", [(2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (2, 1, 0, 2)])
def test_pooling(axes: int, setting: tuple[int, int, int, int]) -> None:
    size, stride, padding, dilation = setting
    x = tensor(axes, 2)
    named = {"stride": stride, "padding": padding, "dilation": dilation}
    most = getattr(spconv, f"SparseMaxPool{axes}d")(size, **named)(x)
    mean = getattr(spconv, f"SparseAvgPool{axes}d")(size, **named)(x)
    ones = torch.ones(2, *[size] * axes, 2).double() * torch.eye(2).view(2, *[1] * axes, 2)
    sums, sites = convolved(x, ones, None, **named)
    counts, _ = convolved(x.replace_feature(torch.ones_like(x.features)), ones, None, **named)
    assert torch.equal(mean.indices.long(), sites)
    expected = at(sums / counts.clamp(min=1), mean.indices)
    torch.testing.assert_close(mean.features, expected, atol=DENSE, rtol=DENSE)
    check_gradients(torch.nn.Identity(), x.features, mean.features, expected)
    pooled = getattr(F, f"max_pool{axes}d")(x.dense(), size, **named)
    expected = at(pooled.clamp(min=0), most.indices)
    torch.testing.assert_close(most.features, expected, atol=DENSE, rtol=DENSE)
    check_gradients(torch.nn.Identity(), x.features, most.features, expected)


@pytest.mark.usefixtures("where")
def test_layers_on_maps_of_either_builder() -> None:
    """Rows in any order: maps are written in the tensor's rows, whatever built them."""
    net = spconv.SparseSequential(
        spconv.SubMConv3d(2, 3, 3, indice_key="a"),
        spconv.SparseConv3d(3, 3, 3, 2, 1, indice_key="d"),
        spconv.SubMConv3d(3, 3, 3),
        spconv.SparseInverseConv3d(3, 2, 3, indice_key="d"),
        spconv.SparseMaxPool3d(2),
    ).double()
    x, ordered = tensor(3, 2, many=60), tensor(3, 2, many=60, ordered=True)
    same = ordered.replace_feature(at(x.dense(), ordered.indices))
    assert not torch.equal(x.indices, ordered.indices)
    first, second = net(x), net(same)
    assert torch.equal(first.indices, second.indices)
    torch.testing.assert_close(first.features, second.features, atol=DENSE, rtol=DENSE)
    leaves = [x.features, *net.parameters()]
    for total in zip(
        torch.autograd.grad(first.features.square().sum(), leaves, retain_graph=True),
        torch.autograd.grad(second.features.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(*total, atol=DENSE, rtol=DENSE)


def test_compiled_code_and_autocast_go_around_the_layers() -> None:
    net = spconv.SparseSequential(spconv.SubMConv2d(3, 3, 3), torch.nn.ReLU()).double()
    x = tensor(2, 3)
    compiled = torch.compile(net, backend="eager")
    torch.testing.assert_close(compiled(x).features, net(x).features)
    x = x.replace_feature(x.features.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert net.float()(x).features.dtype == torch.bfloat16
    assert net(x).features.dtype == torch.float32


def test_global_pooling() -> None:
    x = tensor(2, 3)
    most, mean = spconv.SparseGlobalMaxPool()(x), spconv.SparseGlobalAvgPool()(x)
    for cloud in (0, 1):
        own = x.features[x.indices[:, 0] == cloud]
        torch.testing.assert_close(most[cloud], own.max(0).values)
        torch.testing.assert_close(mean[cloud], own.mean(0))
    empty = spconv.SparseConvTensor(torch.ones(1, 2), torch.zeros(1, 3).int(), [4, 4], 2)
    assert spconv.SparseGlobalMaxPool()(empty).tolist() == [[1, 1], [0, 0]]


def test_a_network_may_be_trained_twice_differentiably() -> None:
    net = spconv.SparseSequential(
        spconv.SubMConv2d(2, 3, 3, indice_key="a"),
        torch.nn.Tanh(),
        spconv.SparseConv2d(3, 2, 3, 2, 1),
    ).double()
    x = tensor(2, 2, many=6)

    def forward(features: Tensor) -> Tensor:
        return net(x.replace_feature(features)).features  # type: ignore[no-any-return]

    assert torch.autograd.gradcheck(forward, x.features)
    assert torch.autograd.gradgradcheck(forward, x.features)


def test_classes_of_a_number_of_axes_take_arguments_in_spconvs_order() -> None:
    for axes, kind in enumerate((spconv.SparseConv1d, spconv.SparseConv2d, spconv.SparseConv3d), 1):
        layer = kind(4, 6, 2, 2, 1, 1, 1, False, "down")
        own = layer.ndim, layer.stride, layer.padding, layer.bias, layer.indice_key
        assert own == (axes, [2] * axes, [1] * axes, None, "down")
        twin = pickle.loads(pickle.dumps(layer))
        assert type(twin) is kind
        assert twin.weight_shape == layer.weight_shape
    assert spconv.SubMConv3d(4, 6, 3).subm
    assert spconv.SparseConvTranspose2d(4, 6, 2).transposed
    assert spconv.SparseInverseConv3d(4, 6, 2, "down", False).inverse
    assert spconv.SparseMaxPool2d(2).stride == [2, 2]
    mistakes: tuple[Callable[[], object], ...] = (
        lambda: spconv.SparseConv3d(4, 6),
        lambda: spconv.SparseInverseConv3d(4, 6, 2),
        lambda: spconv.SubMConv3d(4, 6, 3, window=3),
        lambda: spconv.SparseConv3d(4, 6, 3, kernel_size=3),
        lambda: spconv.SparseMaxPool3d(*range(9)),
    )
    for mistake in mistakes:
        with pytest.raises(TypeError):
            mistake()
