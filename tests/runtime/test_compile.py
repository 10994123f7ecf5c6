from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import pcnn
from pcnn.models import SparseResNet21
from pcnn.runtime import compile
from tests.clouds import surface_grid
from tests.maps.native_points import scan, single


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()


def layers() -> nn.Module:
    return pcnn.nn.Sequential(
        pcnn.nn.Conv3d(4, 8, 3, 2), nn.BatchNorm1d(8), nn.ReLU(), pcnn.nn.Conv3d(8, 8, 3)
    )


@pytest.mark.parametrize("training", [False, True])
def test_calls_plan_and_one_graph_serves_all_sizes(training: bool) -> None:
    net = layers().double().eval()  # batch statistics would change between the two calls
    compiled = compile(net, "aot_eager")
    assert set(compiled.state_dict()) == {f"model.{name}" for name in net.state_dict()}
    for n in (300, 0, 1, 200, 2, 400):
        grid, again = surface_grid(n), surface_grid(n)
        x = torch.randn(grid.rows, 4, dtype=torch.float64)
        with torch.set_grad_enabled(training):
            found = compiled(pcnn.SparseTensor(x, grid)).features
            wanted = net(pcnn.SparseTensor(x, again)).features
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        assert found.requires_grad == training
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("alone", [False, True])
def test_native_points_are_planned_as_well(alone: bool) -> None:
    net = layers().double().eval()
    compiled = compile(net, "eager")
    for n in (200, 0, 1, 300):
        points = single(scan(n)) if alone else scan(n)
        x = torch.randn(points.rows, 4, dtype=torch.float64)
        found = compiled(pcnn.SparseTensor(x, points)).features
        wanted = net(pcnn.SparseTensor(x, replace(points))).features
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        found.sum().backward()
    assert counters["stats"]["unique_graphs"] == 1


def test_a_network_keeps_its_own_planner() -> None:
    net = SparseResNet21(width=0.125).eval()
    compiled = compile(net, "eager")
    with torch.no_grad():
        compiled(pcnn.SparseTensor(torch.randn(1, 4), surface_grid(1)))
    assert compiled._planner is None
    assert net.planner.belongs_to(net)
