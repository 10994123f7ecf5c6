"""Networks whose calls become graphs by themselves compute what they compute eagerly."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.graphs.automatic import AFTER, PAUSE
from pcnn.graphs.capture import Work
from pcnn.graphs.fixed_input import Edges
from pcnn.graphs.memory import VoxelMemory
from pcnn.graphs.runner import Runner
from pcnn.models import MinkUNet42, ResUNetBN2C
from pcnn.nn import Conv3d, GlobalMaxPool, PlannedModule
from pcnn.ops import Engine
from pcnn.tensor import SparseTensor
from tests.graphs.graphed import KERNELS, ROWS, TILES, cloud, points, rerun, tensors

EDGES = Edges(128, 1.3)


class Small(PlannedModule):
    """Features on both levels, of whole clouds, and what a subclass makes of the first."""

    def __init__(self, engine: Engine = TILES) -> None:
        super().__init__()
        self.stem, self.down = Conv3d(2, 4, 3, engine=engine), Conv3d(4, 4, 3, 2, engine=engine)
        self.whole = GlobalMaxPool()

    def forward(self, x: SparseTensor) -> dict[str, Any]:
        fine = self.stem(x)
        low = self.down(fine)
        return {"levels": [fine, low], "whole": self.whole(low), "more": self.more(fine)}

    def more(self, x: SparseTensor) -> Any:
        return x.features


class Mixing(Small):
    def more(self, x: SparseTensor) -> Tensor:
        return x.features - x.features.mean(0)


class Counting(Small):
    def more(self, x: SparseTensor) -> int:
        return len(x)


class Drawing(Small):
    def more(self, x: SparseTensor) -> Tensor:
        return torch.rand(3)


def graphed(net: PlannedModule, capture: Callable[[Work], Work] = rerun) -> Any:
    """A network in evaluation whose graphs are run again, where there is no device for them."""
    net.eval()
    net._graphs = Runner(net, capture, EDGES)
    return net


def places(net: PlannedModule) -> list[Any]:
    assert net._graphs is not None
    return list(net._graphs.places.values())


def check(net: PlannedModule, x: SparseTensor, again: SparseTensor) -> Any:
    """Hold a call, which may be a graph, to that of the network without any."""
    net.graphs = False
    wanted = net(x)
    net.graphs = True
    found = net(again)
    for one, other in zip(tensors(found), tensors(wanted), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    return found


def replays(net: PlannedModule, calls: int = 0) -> int:
    """Calls that were graphs, behind some more calls."""
    for _ in range(calls):
        check(net, cloud(200, 1)[0], cloud(200, 1)[0])
    assert net._graphs is not None
    return net._graphs.replays


@pytest.fixture(autouse=True)
def without_gradients() -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("make", [Small, partial(MinkUNet42, 2, 3, 0.125)])
def test_levels_and_maps_are_made_inside_a_graph(make: Callable[..., PlannedModule]) -> None:
    net = graphed(make(engine=KERNELS))
    for seed, size in enumerate((90, 100, 80, 90, 400, 400, 400, 410, 1, 85)):
        found = check(net, cloud(size, seed)[0], cloud(size, seed)[0])
        del found
    assert net.graphs_reason is None
    assert all(isinstance(place.memory, VoxelMemory) for place in places(net))
    assert min(place.memory.room.points for place in places(net)) == 128
    assert replays(net) >= 3


@pytest.mark.parametrize("make", [points, cloud])
def test_planned_inputs_are_copied(make: Any) -> None:
    net = graphed(ResUNetBN2C(2, 3, 3, True, 0.125, ROWS).double() if make is points else Small())
    kept = []
    for seed in (1, 1, 1, 2, 3, 1):
        x = make(200, seed)[0]
        found = check(net, make(200, seed)[0], x)
        kept.append((found, [one.clone() for one in tensors(found)]))
        one = found["levels"][0] if isinstance(found, dict) else found
        assert one.geometry is x.geometry
    assert net.graphs_reason is None
    assert replays(net) == 6 - AFTER
    for output, before in kept:  # later calls do not overwrite it
        assert all(map(torch.equal, tensors(output), before))


@pytest.mark.usefixtures("emulated")
def test_a_cloud_that_does_not_fit_gets_memory_that_holds_both() -> None:
    net = graphed(Small(KERNELS))
    dense, sparse = (cloud(320, 1, 12)[0] for _ in range(2)), cloud(150, 2, 60)[0]
    for x in (*dense, cloud(320, 1, 12)[0]):
        net(x)
    (small,) = (place.memory.room for place in places(net))
    check(net, cloud(150, 2, 60)[0], sparse)
    (large,) = (place.memory.room for place in places(net))
    assert large.rows[1] > small.rows[1]
    check(net, cloud(320, 1, 12)[0], cloud(320, 1, 12)[0])
    assert replays(net) == 1


def changed(net: Any) -> None:
    net.stem.weight.mul_(1.5)


def doubled(net: Any) -> None:
    net.stem.register_forward_hook(lambda module, given, out: out.replace(2 * out.features))


def retrained(net: Any) -> None:
    net.train().eval()


@pytest.mark.parametrize("change", [changed, doubled, retrained])
def test_changes_of_the_network_are_seen(change: Callable[[Any], None]) -> None:
    net = graphed(Small())
    assert replays(net, 5) == 2
    change(net)
    assert replays(net, 2) == 2
    assert replays(net, 5) >= (2 if change is doubled else 5)
    assert (net.graphs_reason is None) == (change is not doubled)
    assert bool(places(net)) == (change is not doubled)


@pytest.mark.parametrize("make", [Mixing, Counting, Drawing])
def test_what_depends_on_spare_rows_or_chance_is_no_graph(make: Callable[[], Any]) -> None:
    net = graphed(make())
    for seed in range(AFTER + 2):
        output = net(cloud(200, seed)[0])
    assert not places(net)
    assert net.graphs_reason
    if make is Counting:
        assert output["more"] == len(output["levels"][0])


def test_a_failed_capture_is_tried_again_later() -> None:
    attempts = []

    def capture(work: Work) -> Work:
        attempts.append(len(attempts))
        raise torch.OutOfMemoryError if len(attempts) > 1 else RuntimeError("it waits")

    net = graphed(Small(), capture)
    assert replays(net, AFTER + PAUSE) == 0
    assert "it waits" in net.graphs_reason
    assert len(attempts) == 1
    assert replays(net, AFTER) == 0
    assert "memory" in net.graphs_reason
    assert len(attempts) == 2


def test_who_is_served() -> None:
    net = graphed(Small())
    replays(net, AFTER)
    with torch.enable_grad():
        assert replays(net, 2) == 0
    net.plans_input = False
    assert replays(net, 2) == 0
    net.plans_input = True
    assert replays(net, 2) == 2
    with torch.inference_mode():
        assert replays(net, 1) == 3
    with torch.autocast("cpu", torch.bfloat16):
        assert replays(net, AFTER + 1) == 4
    net.train()
    assert not places(net)
    net(cloud(200, 1)[0])


def test_copies_have_graphs_of_their_own() -> None:
    net = graphed(Small())
    replays(net, AFTER)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other._graphs is None
        assert all(
            map(torch.equal, tensors(other(cloud(200, 1)[0])), tensors(net(cloud(200, 1)[0])))
        )
    shallow = copy.copy(net)
    shallow(cloud(200, 1)[0])
    assert shallow._graphs is not net._graphs
