import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pcnn
from pcnn.geometry import VoxelGrid
from pcnn.nn import Conv3d, FeatureWise, Sequential, add, cat, normalize
from pcnn.rowwise import POINTWISE as POINTWISE_FUNCTIONS
from tests.clouds import surface_grid


def tensor(n: int, channels: int = 4, seed: int = 0) -> pcnn.SparseTensor:
    grid = surface_grid(n, seed=seed)
    return pcnn.SparseTensor(torch.randn(grid.rows, channels), grid)


def test_plain_modules_act_on_features() -> None:
    x = tensor(50)
    net = Sequential(nn.Linear(4, 8), Conv3d(8, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0))
    y = net(x)
    assert y.geometry is x.geometry
    assert y.features.shape == (x.geometry.rows, 8)
    assert (y.features >= 0).all()
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert any(isinstance(m, nn.SyncBatchNorm) for m in synced.modules())


POINTWISE = (
    *(nn.CELU(), nn.Dropout(0), nn.ELU(), nn.GELU(), nn.GLU(), nn.Hardsigmoid(), nn.Hardswish()),
    *(nn.Hardtanh(), nn.Identity(), nn.LayerNorm(4), nn.LeakyReLU(), nn.Linear(4, 3)),
    *(nn.LogSigmoid(), nn.LogSoftmax(-1), nn.Mish(), nn.PReLU(), nn.RMSNorm(4), nn.ReLU()),
    *(nn.ReLU6(), nn.SELU(), nn.SiLU(), nn.Sigmoid(), nn.Softmax(1), nn.Softplus()),
    *(nn.Softsign(), nn.Tanh(), nn.BatchNorm1d(4)),
)


def test_pointwise_modules_of_torch_take_it_as_they_are() -> None:
    x = tensor(50)
    for module in POINTWISE:
        y = module(x)
        assert y.geometry is x.geometry
        assert torch.equal(y.features, module(x.features)), module
    for module in (nn.Softmax(0), nn.LayerNorm((50, 4)), nn.MaxPool1d(2), nn.Dropout1d()):
        with pytest.raises(TypeError, match="takes no SparseTensor"):
            module(x)


def test_pointwise_functions_of_torch_take_it_as_they_are() -> None:
    x = tensor(50)
    positive = x.replace(x.features.abs() + 1)
    for name in sorted(function.__name__ for function in POINTWISE_FUNCTIONS):
        function = getattr(torch, name, None)
        if function not in POINTWISE_FUNCTIONS or name in ("prelu", "clamp", "clip"):
            continue
        y = function(positive)
        assert y.geometry is x.geometry
        assert torch.equal(y.features, function(positive.features)), name
    calls: dict[str, Callable[[Any], Any]] = {
        "softmax": lambda x: torch.softmax(x, 1),
        "log_softmax": lambda x: torch.log_softmax(x, dim=-1),
        "clamp": lambda x: torch.clamp(x, min=0.5),
        "pow": lambda x: torch.pow(x, 2),
        "power": lambda x: x**2,
        "abs": abs,
    }
    for name, call in calls.items():
        assert torch.equal(call(x).features, call(x.features)), name
    assert torch.equal((positive**x).features, positive.features**x.features)
    refused: tuple[Callable[[], Any], ...] = (
        lambda: torch.cat([x, x]),
        lambda: torch.matmul(torch.eye(len(x)), x),
        lambda: torch.softmax(x, 0),
        lambda: torch.pow(x, torch.ones(len(x))),
        lambda: torch.sort(x),
    )
    for call in refused:
        with pytest.raises(TypeError, match=r"takes no SparseTensor.* pcnn\.nn has"):
            call()


def test_a_sequence_of_torch_trains_as_ours_does() -> None:
    x = tensor(50)
    layers = Conv3d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), Conv3d(8, 8, 2, 2), nn.GELU()
    own, theirs = Sequential(*copy.deepcopy(layers)), nn.Sequential(*layers)
    pcnn.plan(theirs, x.geometry)
    y, expected = theirs(x), own(x)
    assert y.geometry is expected.geometry
    torch.testing.assert_close(y.features, expected.features)
    for features in (y.features, expected.features):
        features.square().sum().backward()
    for a, b in zip(theirs.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)
    for a, b in zip(theirs.buffers(), own.buffers(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_norm_of_torch_knows_spare_rows_and_few(rows: int) -> None:
    full = tensor(rows)
    spare = rows > 1
    grid = full.geometry
    if spare:
        keys = torch.cat([grid.keys, torch.full((3,), grid.key_format.sentinel)])  # type: ignore[attr-defined]
        count = torch.tensor([full.geometry.rows], dtype=torch.int32)
        grid = VoxelGrid(keys, 1, grid.bound, count=count)  # type: ignore[attr-defined]
    x = pcnn.SparseTensor(torch.cat([full.features, torch.full((3 * spare, 4), torch.inf)]), grid)
    plain, wrapped = nn.BatchNorm1d(4), FeatureWise(nn.BatchNorm1d(4))
    assert torch.equal(plain(x).features, wrapped(x).features)
    assert torch.equal(plain.running_var, wrapped.module.running_var)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, 1])
def test_norms_train_on_clouds_that_have_no_variance(n: int) -> None:
    norm = nn.BatchNorm1d(4)
    norm.running_mean.fill_(3.0)  # type: ignore[union-attr]
    x = torch.randn(n, 4, requires_grad=True)
    y = normalize(norm, x)
    torch.testing.assert_close(y, (x - 3) / (1 + norm.eps) ** 0.5)
    y.sum().backward()
    assert norm.running_mean is not None
    assert (norm.running_mean == 3).all()
    assert int(norm.num_batches_tracked) == 0  # type: ignore[arg-type]


def test_norms_are_torchs_own_otherwise() -> None:
    ours, torchs, x = nn.BatchNorm1d(4), nn.BatchNorm1d(4), torch.randn(9, 4)
    assert torch.equal(normalize(ours, x), torchs(x))
    assert torch.equal(ours.running_var, torchs.running_var)  # type: ignore[arg-type]


def test_joins_check_the_geometry() -> None:
    x, other = tensor(50), tensor(50, seed=1)
    joined = cat(x, x.replace(torch.zeros(x.geometry.rows, 2)))
    assert joined.channels == 6
    assert torch.equal(add(x, x).features, 2 * x.features)
    for join in (cat, add):
        with pytest.raises(ValueError, match="another geometry"):
            join(x, other)
    with pytest.raises(ValueError, match="at least one"):
        cat()


def test_feature_wise_keeps_plain_parameters() -> None:
    layer = FeatureWise(nn.Linear(4, 2))
    assert set(layer.state_dict()) == {"module.weight", "module.bias"}
