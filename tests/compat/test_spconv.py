"""`pcnn.compat.spconv`: layers against torch's dense ones, tensors, and what may go wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import pcnn
import pcnn.compat.spconv.pytorch as spconv
from pcnn.interop import SPCONV
from pcnn.nn.fused import Folded
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
    (3, {"kernel_size": 2, "stride": 1, "padding": 2, "dilation": 3}),
    (3, {"kernel_size": (3, 1, 2), "stride": (2, 1, 3), "padding": (0, 0, 1)}),
    (3, {"kernel_size": 1, "stride": 2, "padding": 0, "bias": False}),
    (2, {"kernel_size": (4, 3), "stride": 1, "padding": (2, 0), "bias": False}),
    (1, {"kernel_size": 5, "stride": 2, "padding": 1, "dilation": 2}),
]
TRANSPOSED = [
    (3, {"kernel_size": 3, "stride": 2, "padding": 1}),
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


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_tensor_is_what_it_was_given_and_its_volume(axes: int) -> None:
    x = tensor(axes, 3)
    features, kept = torch.zeros(len(x.features), 2), x.indice_dict
    y = x.replace_feature(features)
    assert (y.features is features, y.indices is x.indices, y.indice_dict is kept) == (True,) * 3
    assert x.features.shape[1] == 3
    for added in (x, x.features):
        assert torch.equal((x + added).features, 2 * x.features)
    assert x.find_indice_pair(None) is None
    with pytest.raises(AttributeError):
        x.features = features
    volume = x.dense()
    assert volume.shape == (2, 3, *SHAPES[axes])
    assert torch.equal(x.dense(channels_first=False), volume.movedim(1, -1))
    again = spconv.SparseConvTensor.from_dense(volume.detach().movedim(1, -1))
    assert (again.spatial_shape, again.batch_size) == (x.spatial_shape, 2)
    assert torch.equal(again.dense(), volume)
    assert torch.equal(at(volume, x.indices), x.features)


def test_wrong_arguments() -> None:
    """They are `ValueError`, and `AssertionError` as in spconv."""
    x = tensor(2, 3)
    f, i = x.features, x.indices
    for given, message in [
        ((f, i.long(), [9, 7], 2), "int32"),
        ((f, i, [9, 7, 5], 2), "spatial_shape"),
        ((f, i, [9, 7], 0), "batch_size"),
        ((f[None], i, [9, 7], 2), "features"),
    ]:
        with pytest.raises(AssertionError, match=message):
            spconv.SparseConvTensor(*given)
    layer = spconv.SubMConv2d(3, 3, 3).double()
    for given, message in [
        ((f, i, [4, 7], 2), "column 1"),
        ((f, i, [9, 7], 1), "batch"),
        ((f[:1].repeat(2, 1), i[:1].repeat(2, 1), [9, 7], 2), "more than once"),
        ((f[:, :2], i, [9, 7], 2), "3 channels"),
    ]:
        with pytest.raises(ValueError, match=message):
            layer(spconv.SparseConvTensor(*given))
    with pytest.raises(ValueError, match="groups"):
        spconv.SubMConv2d(4, 4, 3, groups=2)
    with pytest.raises(ValueError, match="padding"):
        spconv.SparseConv2d(4, 4, 1, padding=1)
    with pytest.raises(ValueError, match="odd"):
        spconv.SubMConv2d(3, 4, 2).double()(x)
    far = spconv.SparseConvTensor(f[:1], torch.tensor([[0, 0, 6]]).int(), [9, 7], 1)
    with pytest.raises(ValueError, match="no site"):
        spconv.SparseConv2d(3, 4, 1, 4).double()(far)


def test_keys_belong_to_a_map() -> None:
    x = tensor(2, 3)
    first = spconv.SubMConv2d(3, 3, 3, indice_key="a").double()
    y = first(x)
    assert "a" not in x.indice_dict
    kept = y.find_indice_pair("a")
    assert kept is not None
    assert (kept.is_subm, kept.ksize) == (True, [3, 3])
    assert first(y).find_indice_pair("a") is kept
    for layer in [
        spconv.SubMConv2d(3, 3, 5, indice_key="a"),
        spconv.SparseConv2d(3, 3, 3, 2, indice_key="a"),
        spconv.SparseMaxPool2d(2, indice_key="a"),
        spconv.SparseInverseConv2d(3, 3, 3, indice_key="a"),
        spconv.SparseInverseConv2d(3, 3, 3, indice_key="b"),
    ]:
        with pytest.raises(ValueError, match=f"indice_key '{layer.indice_key}'"):
            layer.double()(y)
    down = spconv.SparseConv2d(3, 3, 3, 2, indice_key="d").double()(y)
    with pytest.raises(ValueError, match="indice_key 'd'"):
        spconv.SparseInverseConv2d(3, 3, 2, indice_key="d").double()(down)
    again = spconv.SparseConv2d(3, 3, 3, 2).double()(y)
    assert again.indices is down.indices  # one kernel, one set of sites


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_a_convolution_its_norm_and_relu_are_one_call(
    bias: bool, relu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    between = [torch.nn.ReLU()] if relu else []
    net = spconv.SparseSequential(
        *(spconv.SubMConv2d(3, 4, 3, bias=bias), torch.nn.BatchNorm1d(4), *between),
        *(spconv.SparseConv2d(4, 5, 3, 2, 1, bias=bias), torch.nn.BatchNorm1d(5)),
    ).double()
    x, plain = tensor(2, 3), copy.deepcopy(net)
    wanted = x
    for module in plain:  # one after another
        on_tensor = isinstance(module, spconv.SparseModule)
        rows = wanted if on_tensor else module(wanted.features)
        wanted = module(wanted) if on_tensor else wanted.replace_feature(rows)
    assert torch.equal(net(x).features, wanted.features)
    for own, other in zip(net.buffers(), plain.buffers(), strict=True):
        assert torch.equal(own, other)
    calls: list[bool] = []
    applied = Folded.applied
    monkeypatch.setattr(Folded, "applied", lambda *a: calls.append(a[3]) or applied(*a))
    wanted = net.eval()(x).features.detach()
    assert not calls
    with torch.no_grad():
        torch.testing.assert_close(net(x).features, wanted, atol=1e-10, rtol=1e-10)
    assert calls == [relu, False]


def test_checkpoints_have_the_layout_of_spconv() -> None:
    layer = spconv.SparseConv3d(3, 4, (1, 2, 3))
    assert layer.weight.shape == (4, 1, 2, 3, 3)
    torch.manual_seed(5)
    layer.reset_parameters()
    torch.manual_seed(5)  # one seed draws what it draws in spconv
    for own in (layer.weight, layer.bias):
        bound = (3 * 1 * 2 * 3) ** -0.5
        assert torch.equal(own, torch.empty(own.shape).uniform_(-bound, bound))
    state = spconv.SparseConv3d(3, 4, (1, 2, 3)).state_dict()
    assert set(state) == {"weight", "bias"}
    layer.load_state_dict({n: v.contiguous() for n, v in state.items()}, strict=False)
    assert torch.equal(layer.weight, state["weight"])
    ours = pcnn.nn.Conv3d(3, 4, (1, 2, 3))
    matrices = SPCONV.to_ours(layer.weight, ours.kernel)
    # the channels of the output lie innermost, also behind a cast, a copy and a step
    for made in (layer, copy.deepcopy(layer), layer.to(torch.float16).float()):
        view = made.weight.movedim(0, -1).flatten(0, 2)
        assert view.is_contiguous()
        torch.testing.assert_close(view, matrices, atol=1e-3, rtol=0)
    x = tensor(3, 3)
    x = x.replace_feature(x.features.float())
    out = layer(x)
    out.features.sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.stride() == layer.weight.stride()
