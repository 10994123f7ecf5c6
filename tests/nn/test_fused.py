import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.models.blocks import ConvNorm, ResidualBlock
from pcnn.nn import Conv3d, normalize
from pcnn.nn.fused import fused_convolution
from tests.nn.fusing import joined, layer, recorded, separate, shaken, tensor
from tests.tolerance import RELATIVE_RMS, relative_rms

KINDS = ["3", "strided", "transposed", "1", "strided 1"]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_against_float64(kind: str, dtype: torch.dtype) -> None:
    bias = dtype in DTYPES[::2]
    engine, calls = recorded()
    block = layer(kind, bias=bias, engine=engine).to(dtype)
    x = tensor(dtype=dtype)
    sites = ()
    if kind == "transposed":
        fine = x.geometry
        x = pcnn.SparseTensor(*_coarse(x, dtype))
        sites = (fine,)  # type: ignore[assignment]
    with torch.no_grad():
        y = block(x, *sites)
    assert len(calls) == (kind != "1")
    assert y.features.dtype == dtype
    exact = copy.deepcopy(block).double()
    expected = separate(exact, x.replace(x.features.double()), *sites).features
    error = relative_rms(y.features, expected)
    plain = separate(block, x, *sites).features
    # a pointwise layer rounds scaled weights instead of the product; 1.2 is chance (float32)
    assert error <= (1.5 if kind == "1" else 1.2) * relative_rms(plain, expected) + 1e-15
    # one rounding of the result; of the weights and the shift too where the layer is pointwise
    assert error < (2 if kind == "1" else 1) * RELATIVE_RMS[dtype]


def _coarse(x: pcnn.SparseTensor, dtype: torch.dtype) -> tuple[torch.Tensor, pcnn.VoxelGrid]:
    kernel = Conv3d(1, 1, 2, 2).kernel
    grid = x.geometry.strided(kernel)
    return torch.randn(grid.rows, 4).to(dtype), grid


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("source", [tensor, joined])
@pytest.mark.parametrize("channels", [4, 6])
def test_a_block_against_float64(
    channels: int, source: Callable[..., pcnn.SparseTensor], dtype: torch.dtype
) -> None:
    engine, calls = recorded()

    def conv(*args: Any, **kwargs: Any) -> Conv3d:
        return Conv3d(*args, engine=engine, **kwargs)

    block = shaken(ResidualBlock(4, channels, conv, nn.BatchNorm1d)).to(dtype)
    x = source(dtype=dtype)
    with torch.no_grad():
        y = block(x)
    first, second = (call["epilogue"] for call in calls)
    assert first.relu
    assert first.residual is None
    assert second.relu
    assert second.residual is not None
    assert (calls[0]["skip"] is not None) == (source is joined)
    exact = copy.deepcopy(block).double()
    expected = separate(exact, x.replace(x.features.double())).features
    error = relative_rms(y.features, expected)
    assert error < 2 * RELATIVE_RMS[dtype]  # of two layers
    assert error <= 1.2 * relative_rms(separate(block, x).features, expected) + 1e-15


@pytest.mark.parametrize(("channels", "dtype"), [(6, torch.bfloat16), (4, torch.float32)])
def test_autocast_reaches_the_fused_layers(channels: int, dtype: torch.dtype) -> None:
    """A residual of another dtype, without a layer of its own, decides the dtype of the sum."""
    block, x = shaken(ResidualBlock(4, channels, Conv3d, nn.BatchNorm1d)), tensor()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = separate(block, x).features
        with torch.no_grad():
            y = block(x).features
    assert y.dtype == expected.dtype == dtype
    assert relative_rms(y, expected) < 4 * RELATIVE_RMS[torch.bfloat16]


def test_a_residual_lives_on_the_sites_of_the_output() -> None:
    x, other = tensor(), tensor(300)
    block = layer("3")
    residual = other.replace(torch.zeros(other.geometry.rows, 6))
    for grad in (False, True):
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="another geometry"):
            block.added_to(residual, x)


def test_training_is_the_plain_sequence_bit_for_bit() -> None:
    block, x = ResidualBlock(4, 6, Conv3d, nn.BatchNorm1d), tensor()
    other = copy.deepcopy(block)
    first, second, shortcut = other.first, other.second, other.shortcut
    hidden = normalize(first.norm, first.conv(x).features).relu_()
    main = normalize(second.norm, second.conv(x.replace(hidden)).features)
    expected = main + normalize(shortcut.norm, shortcut.conv(x).features)  # type: ignore
    for net, y in ((block, block(x).features), (other, expected.relu_())):
        y.square().sum().backward()
        net.get_buffer("first.norm.running_mean")
    assert torch.equal(block(x).features, other(x).features)
    for ours, plain in zip(block.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours.grad, plain.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"]
)
def test_copies_have_norms_of_their_own(copied: Callable[[nn.Module], nn.Module]) -> None:
    block, x = layer("3", engine="reference"), tensor()
    with torch.no_grad():
        expected = block(x).features
        other = copied(block)
        other.norm.weight.mul_(2)  # type: ignore[operator, union-attr]
        torch.testing.assert_close(other(x).features, separate(other, x).features)
        assert torch.equal(block(x).features, expected)


def test_a_switch_of_mode_forgets_what_was_folded() -> None:
    block, x = layer("3"), tensor()
    with torch.no_grad():
        block(x)
        block.norm.weight.data.mul_(2)  # type: ignore[operator, union-attr]  # unseen by torch
        y = block.eval()(x).features
    torch.testing.assert_close(y, separate(block, x).features)


def test_a_layer_without_a_norm() -> None:
    x = joined()
    for kernel_size, bias in ((1, True), (1, False), (3, True), (3, False)):
        conv = Conv3d(4, 6, kernel_size, bias=bias)
        with torch.no_grad():
            y = fused_convolution(conv, x, relu=True).features
        torch.testing.assert_close(y, conv(x).features.relu().detach())


def test_a_bias_that_is_no_parameter_is_added() -> None:
    x, conv = tensor(), Conv3d(4, 6, 3, bias=False)
    conv.bias = torch.randn(6)  # type: ignore[assignment]
    block = shaken(ConvNorm(conv, nn.BatchNorm1d(6)))
    with torch.no_grad():
        torch.testing.assert_close(block(x).features, separate(block, x).features)


@pytest.mark.parametrize("source", [tensor, joined])
def test_inference_mode_and_no_grad_take_turns(source: Callable[[], pcnn.SparseTensor]) -> None:
    block, x = shaken(ResidualBlock(4, 6, Conv3d, nn.BatchNorm1d)), source()
    expected = separate(block, x).features
    with torch.inference_mode():
        inside = block(x).features
        torch.testing.assert_close(inside, expected)
    with torch.no_grad():
        assert torch.equal(block(x).features, inside)


@pytest.mark.parametrize("n", [0, 1])
def test_small_clouds(n: int) -> None:
    block, x = shaken(ResidualBlock(4, 6, Conv3d, nn.BatchNorm1d)), tensor(n)
    with torch.no_grad():
        torch.testing.assert_close(block(x).features, separate(block, x).features)
