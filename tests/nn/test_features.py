import pytest
import torch
from torch import nn

import pcnn
from pcnn.nn import Conv3d, FeatureWise, Sequential, add, concatenate, normalize
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
    joined = concatenate(x, x.replace(torch.zeros(x.geometry.rows, 2)))
    assert joined.channels == 6
    assert torch.equal(add(x, x).features, 2 * x.features)
    for join in (concatenate, add):
        with pytest.raises(ValueError, match="another geometry"):
            join(x, other)
    with pytest.raises(ValueError, match="at least one"):
        concatenate()


def test_feature_wise_keeps_plain_parameters() -> None:
    layer = FeatureWise(nn.Linear(4, 2))
    assert set(layer.state_dict()) == {"module.weight", "module.bias"}
