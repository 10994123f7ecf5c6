import copy
import pickle

import pytest
import torch
from torch import nn

import pcnn
from pcnn.dataflows.gemm import OutputStationary
from pcnn.geometry import VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.models import MinkUNet42, ResNet18
from pcnn.ops import Engine
from pcnn.ops.voxel_plan import VoxelPlan
from tests.clouds import surface_grid


def cached(grid: VoxelGrid) -> tuple[int, int]:
    """Number of levels and of maps below a grid, itself included."""
    maps = len(grid.cached_maps())
    below = [cached(level) for level in grid.levels().values()]
    return 1 + sum(b[0] for b in below), maps + sum(b[1] for b in below)


@pytest.mark.parametrize(
    ("model", "levels", "maps"), [(MinkUNet42, 5, 9), (ResNet18, 6, 12)], ids=["unet", "resnet"]
)
def test_a_plan_builds_all_that_the_model_asks_for(
    model: type[nn.Module], levels: int, maps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = model(width=0.125)
    grid = surface_grid(300, batch_size=2)
    assert pcnn.plan(net, grid) is grid
    assert cached(grid) == (levels, maps)
    builder = next(m.engine.builder for m in net.modules() if hasattr(m, "engine"))
    monkeypatch.setattr(type(builder), "build", lambda *a: pytest.fail("an unplanned map"))
    net(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert cached(grid) == (levels, maps)


def test_copies_and_pickles_plan_for_themselves() -> None:
    net = MinkUNet42(width=0.125)
    assert net.planner is net.planner
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.planner is not net.planner
        assert twin.planner.belongs_to(twin)
    assert pickle.loads(pickle.dumps(net.planner)) is None


def test_a_geometry_is_planned_once_and_anew_for_other_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, grid, calls = MinkUNet42(width=0.125), surface_grid(100), []
    built = VoxelPlan._finish
    monkeypatch.setattr(VoxelPlan, "_finish", lambda *a: calls.append("plan") or built(*a))
    for _ in range(2):
        net(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))
    assert calls == ["plan"]
    assert net.planner.is_planned(grid, backward=True)
    for layer in (m for m in net.modules() if hasattr(m, "engine")):
        layer.engine = Engine("own", SortedSearch(), OutputStationary())
    assert not net.planner.is_planned(grid, backward=True)
    net.planner(grid, backward=True)
    assert net.planner.is_planned(grid, backward=True)
    assert all(built.has("steps") for built in grid.cached_maps())
