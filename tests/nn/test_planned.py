import pytest
import torch

import pcnn
from pcnn.maps import Windowed
from pcnn.models import MinkUNet42
from pcnn.ops.voxel_plan import VoxelPlan
from tests.clouds import surface_grid


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    built = VoxelPlan._finish
    monkeypatch.setattr(VoxelPlan, "_finish", lambda *a: calls.append("plan") or built(*a))
    return calls


def test_a_network_plans_a_geometry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    net, grid = MinkUNet42(width=0.125), surface_grid(100)
    x = pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)
    calls = counted(monkeypatch)
    first = net(x).features
    assert net.planner.is_planned(grid, backward=True)
    monkeypatch.setattr(Windowed, "build", lambda *_: pytest.fail("an unplanned map"))
    net(x)
    assert calls == ["plan"]
    assert first.requires_grad
