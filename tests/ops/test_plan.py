import pytest
import torch
from torch import nn

import pcnn
from pcnn.geometry import VoxelGrid
from pcnn.models import MinkUNet42, ResNet18, ResUNetBN2C, SparseResNet21
from tests.clouds import surface_grid


def cached(grid: VoxelGrid) -> tuple[int, int]:
    """Number of levels and of maps below a grid, itself included."""
    maps = len(grid.cached_maps())
    below = [cached(level) for level in grid._levels.values()]
    return 1 + sum(b[0] for b in below), maps + sum(b[1] for b in below)


@pytest.mark.parametrize(
    ("model", "levels", "maps"),
    [
        (lambda: MinkUNet42(width=0.125), 5, 9),
        (lambda: SparseResNet21(width=0.25), 5, 8),
        (lambda: ResUNetBN2C(in_channels=4, width=0.25), 4, 8),
        (lambda: ResNet18(width=0.125), 6, 12),
    ],
    ids=["minkunet42", "sparse_resnet21", "resunet", "resnet18"],
)
def test_a_plan_builds_all_that_the_model_asks_for(
    model: type[nn.Module], levels: int, maps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model()
    grid = surface_grid(300, batch_size=2)
    assert pcnn.plan(net, grid) is grid
    assert cached(grid) == (levels, maps)
    builder = next(m.engine.builder for m in net.modules() if hasattr(m, "engine"))
    monkeypatch.setattr(type(builder), "build", lambda *a: pytest.fail("an unplanned map"))
    net(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert cached(grid) == (levels, maps)


def test_a_users_model_needs_no_preparation() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(3, 8)
            self.norm = nn.BatchNorm1d(8)
            self.down = pcnn.nn.Conv3d(8, 8, 3, 2, engine="reference")
            self.up = pcnn.nn.ConvTranspose3d(8, 4, 3, 2)

        def forward(self, x: pcnn.SparseTensor) -> pcnn.SparseTensor:
            x = x.replace(self.norm(self.embed(x.features)))
            return self.up(self.down(x))

    model = Mine()
    model.norm.eval()
    planner = pcnn.Planner(model)
    assert (planner.engine.name, model.training, model.norm.training) == ("reference", True, False)
    assert int(model.norm.num_batches_tracked) == 0
    for n in (0, 1, 200):
        # a coarser level and the generated one above it
        assert cached(planner(surface_grid(n))) == (3, 2)


def test_a_model_without_channels_is_named() -> None:
    with pytest.raises(ValueError, match="in_channels"):
        pcnn.plan(nn.Identity(), surface_grid(5))
