import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from pcnn.nn.fused import FoldedNorm
from tests.tolerance import RELATIVE_RMS, relative_rms

CHANNELS = 5


def norm(make: Callable[..., nn.Module] = nn.BatchNorm1d, **arguments: object) -> nn.Module:
    """A norm with statistics and weights of no special value, in evaluation mode."""
    made = make(CHANNELS, **arguments)
    for tensor in (*made.parameters(), *made.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 2)
    return made.eval()


def applied(folded_norm: FoldedNorm, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    folded = folded_norm.fold(module, None, CHANNELS)
    assert folded.scale is not None
    assert folded.shift is not None
    return x * folded.scale + folded.shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("make", [nn.BatchNorm1d, nn.SyncBatchNorm])
def test_a_norm_is_a_scale_and_a_shift(
    make: Callable[..., nn.Module], affine: bool, dtype: torch.dtype
) -> None:
    module, x = norm(make, affine=affine).to(dtype), torch.randn(50, CHANNELS, dtype=dtype)
    y = applied(FoldedNorm(), module, x)
    assert y.dtype == dtype
    assert relative_rms(y, copy.deepcopy(module).double()(x.double())) < RELATIVE_RMS[dtype]


def test_the_bias_of_the_layer_before_is_folded_too() -> None:
    module, bias, x = norm(), torch.randn(CHANNELS), torch.randn(50, CHANNELS)
    folded = FoldedNorm().fold(module, bias, CHANNELS)
    torch.testing.assert_close(x * folded.scale + folded.shift, module(x + bias))
    alone = FoldedNorm().fold(None, bias, CHANNELS)
    assert alone.scale is None
    assert torch.equal(alone.shift, bias)  # type: ignore[arg-type]


def test_half_precision_norms_are_folded_in_float32() -> None:
    module = norm().half()
    folded = FoldedNorm().fold(module, None, CHANNELS)
    exact = copy.deepcopy(module).double()
    expected = exact.weight / (exact.running_var + exact.eps).sqrt()
    assert folded.scale.dtype == torch.float32
    assert relative_rms(folded.scale, expected) < RELATIVE_RMS[torch.float32]


class Clamped(nn.BatchNorm1d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).clamp(-1, 1)


@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm1d(CHANNELS),  # trains
        nn.BatchNorm1d(CHANNELS, track_running_stats=False).eval(),
        nn.BatchNorm1d(CHANNELS + 1).eval(),  # fits no convolution of CHANNELS; torch says so
        nn.InstanceNorm1d(CHANNELS, track_running_stats=True).eval(),
        nn.LayerNorm(CHANNELS).eval(),
        nn.Identity(),
        Clamped(CHANNELS).eval(),
        nn.utils.parametrize.register_parametrization(
            nn.BatchNorm1d(CHANNELS).eval(), "weight", nn.Softplus()
        ),
    ],
    ids=lambda module: type(module).__name__,
)
def test_other_norms_are_not_folded(module: nn.Module) -> None:
    assert FoldedNorm().fold(module, None, CHANNELS) is None


def load(module: nn.Module) -> None:
    module.load_state_dict(norm().state_dict())


def assign(module: nn.Module) -> None:
    module.load_state_dict(norm().state_dict(), assign=True)


def step(module: nn.Module) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    module(torch.randn(9, CHANNELS)).sum().backward()
    optimizer.step()


def train(module: nn.Module) -> None:
    module.train()
    with torch.no_grad():
        module(torch.randn(9, CHANNELS))
    module.eval()


def swap(module: nn.Module) -> None:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data + 1


def in_place(module: nn.Module) -> None:
    with torch.no_grad():
        module.running_var.mul_(2)  # type: ignore[operator, union-attr]


def other_eps(module: nn.Module) -> None:
    module.eps = 0.5  # type: ignore[assignment]


def other_dtype(module: nn.Module) -> None:
    module.double()


def reset(module: nn.Module) -> None:
    module.reset_running_stats()  # type: ignore[operator]


CHANGES = [load, assign, step, train, swap, in_place, other_eps, other_dtype, reset]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_seen(change: Callable[[nn.Module], None]) -> None:
    module, folded_norm = norm(), FoldedNorm()
    x = torch.randn(50, CHANNELS)
    before = applied(folded_norm, module, x)
    change(module)
    after = applied(folded_norm, module, x.to(module.running_mean.dtype))  # type: ignore[arg-type]
    assert not torch.allclose(before.to(after.dtype), after, rtol=1e-9)
    torch.testing.assert_close(after, module(x.to(after.dtype)).detach())


def test_no_fold_of_tensors_that_count_no_changes_and_none_of_inference_mode() -> None:
    module, folded_norm = norm(), FoldedNorm()
    with torch.inference_mode():
        assert FoldedNorm().fold(norm(), None, CHANNELS) is None
        inside = folded_norm.fold(module, None, CHANNELS)
    assert inside is folded_norm.fold(module, None, CHANNELS)
    assert not inside.scale.is_inference()  # type: ignore[union-attr]
    for copied in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        assert copied(folded_norm)._kept is None
    other = type("Other", (torch.Tensor,), {})  # a class of tensors of another package
    module.running_mean = module.running_mean.as_subclass(other)  # type: ignore
    assert FoldedNorm().fold(module, None, CHANNELS) is None


def test_what_is_unchanged_is_kept() -> None:
    module, folded_norm = norm(), FoldedNorm()
    folded = folded_norm.fold(module, None, CHANNELS)
    assert folded_norm.fold(module, None, CHANNELS) is folded
    folded_norm.clear()
    assert folded_norm.fold(module, None, CHANNELS) is not folded


def test_scaled_weights_follow_the_weights_and_the_norm() -> None:
    module, folded_norm = norm(), FoldedNorm()
    weight = nn.Parameter(torch.randn(1, 3, CHANNELS))

    def matrix() -> torch.Tensor:
        folded = folded_norm.fold(module, None, CHANNELS)
        with torch.no_grad():
            return folded.linear(weight, torch.float32, 3)[0]

    first = matrix()
    assert matrix() is first
    with torch.no_grad():
        weight.mul_(2)
    torch.testing.assert_close(matrix(), 2 * first)
    with torch.no_grad():
        module.weight.mul_(2)  # type: ignore[operator, union-attr]
    torch.testing.assert_close(matrix(), 4 * first)
