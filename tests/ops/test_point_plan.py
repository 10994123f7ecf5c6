"""Plans of networks on native points."""

import gc
from dataclasses import replace

import pytest
import torch
from torch import nn

import pcnn
from pcnn.geometry import KernelMap, PointSet, tile_steps
from pcnn.ops import Engine, Planner
from tests.graphs.graphed import ROWS, Pools
from tests.maps.native_points import scan, single


def features(points: PointSet) -> pcnn.SparseTensor:
    generator = torch.Generator().manual_seed(points.rows)
    values = torch.randn(points.rows, 2, generator=generator, dtype=torch.float64)
    return pcnn.SparseTensor(values, points)


def gradients(net: nn.Module, x: pcnn.SparseTensor) -> list[torch.Tensor]:
    net.zero_grad()
    y = net(x).features
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


@pytest.mark.parametrize("chosen", [None, ROWS], ids=["auto", "steps"])
def test_a_planned_step_builds_nothing(
    where: str, chosen: Engine | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Pools(chosen).double()
    net.plans_input = False
    several = scan(90)
    for points in (several, single(several)) if where == "torch" else (several,):
        unplanned = gradients(net, features(points))
        again = replace(points)
        planned = net.planner(again, backward=True)
        assert net.planner.is_planned(planned, True)
        with monkeypatch.context() as patch:
            patch.setattr(KernelMap, "layout", _there(KernelMap.layout))
            for missing in ("strided", "add_map"):
                patch.setattr(PointSet, missing, _kept(getattr(PointSet, missing), missing))
            for own, expected in zip(gradients(net, features(planned)), unplanned, strict=True):
                torch.testing.assert_close(own, expected)


def _there(layout):
    def checked(view: KernelMap, name: str) -> tuple[torch.Tensor, ...]:
        assert view.has(name), f"{name} is derived while the network runs"
        return layout(view, name)

    return checked


def _kept(method, name: str):
    def checked(self: PointSet, kernel, *args):
        assert name == "strided", "a map is built while the network runs"
        assert not kernel.is_strided or self.level(kernel, True), "a level is made"
        return method(self, kernel, *args)

    return checked


def test_planners_without_their_model() -> None:
    net, points = Pools(), scan(60)
    planner = Planner(net)
    planner(points)
    del net
    gc.collect()
    assert planner(scan(61)).cached_maps()
    with pytest.raises(RuntimeError, match="has outlived its model"):
        planner(single(points))


def test_maps_too_large_for_steps_are_planned_without_them(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, net = scan(90), Pools(ROWS).double()
    monkeypatch.setattr(tile_steps, "MOST_TRIPLETS", points.rows)
    built = net.planner(points, backward=True).cached_maps()
    huge = [one for one in built if one.triplets > points.rows]
    assert huge
    for one in huge:
        assert one.has("pairs")  # what their builder wrote
        assert not one.has("steps")
    assert net.planner.is_planned(points, backward=True)
    with pytest.raises(ValueError, match="use the layout pairs"):  # of the layer itself
        net(features(points))
