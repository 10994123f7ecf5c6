"""Steps of a plain loop that become graphs by themselves are those of the eager network."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import pcnn
from pcnn.graphs.automatic import AFTER
from pcnn.graphs.fixed_input import Edges
from pcnn.graphs.memory import VoxelMemory
from pcnn.models import SPVCNN, MinkUNet42, ResUNetBN2C
from pcnn.tensor import SparseTensor
from tests.clouds import surface
from tests.graphs.graphed import KERNELS, ROWS, TILES, Pools, cloud, points, rerun, tensors
from tests.graphs.test_own_graphs import Small, doubled

EDGES = Edges(128, 1.3)
#: Sizes that repeat, among some that do not.
SEEDS = (1, 2, 1, 3, 1, 2, 4, 1)


def voxels() -> Any:
    return MinkUNet42(2, 3, 0.125, TILES).double()


def native() -> Any:
    return ResUNetBN2C(2, 3, 3, False, 0.125, ROWS).double()


def small() -> Any:
    return Small().double()


def pools() -> Any:
    return Pools().double()


def spvcnn() -> Any:
    return SPVCNN(2, 3, 0.125, dropout=0.0, engine=TILES).double()


def made_inside() -> Any:
    """Every level has a norm, and a plan inside of the graphs."""
    return MinkUNet42(2, 3, 0.125, KERNELS).double()


def batch(net: Any, seed: int) -> SparseTensor:
    size = 240 - 5 * seed
    x = (points if isinstance(net, ResUNetBN2C | Pools) else cloud)(size, seed)[0]
    return x.replace(x.features.double())


def twins(make: Callable[[], Any]) -> tuple[Any, Any]:
    """A network whose steps are graphs, and the same without any."""
    torch.manual_seed(0)
    net = make().train()
    plain = copy.deepcopy(net)
    plain.graphs = False
    net(batch(net, 1))  # makes what belongs to it
    plain(batch(plain, 1))
    net.start_graphs(capture=rerun, edges=EDGES)
    return net, plain


def replays(net: Any) -> int:
    return sum(steps.replays for steps in net._steps)


def loss_of(output: Any) -> Tensor:
    parts = [one for one in tensors(output) if one.is_floating_point()]
    return sum(((one * one.detach().cos()).sum() for one in parts), start=torch.zeros(()))


def same(net: nn.Module, plain: nn.Module) -> None:
    for (name, one), other in zip(
        net.state_dict().items(), plain.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, msg=name)
    for one, other in zip(net.parameters(), plain.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("make", [voxels, native, small, pools, spvcnn])
def test_a_loop_learns_the_same(make: Callable[[], Any]) -> None:
    both = twins(make)
    optimizers = [torch.optim.SGD(net.parameters(), lr=1e-3) for net in both]
    for seed in SEEDS:
        found = []
        for net, optimizer in zip(both, optimizers, strict=True):
            output = net(batch(net, seed))
            optimizer.zero_grad()
            loss_of(output).backward()
            found.append(tensors(output))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
        same(*both)
        for optimizer in optimizers:
            optimizer.step()
    assert both[0].graphs_reason is None
    assert replays(both[0]) >= 3


@pytest.mark.usefixtures("emulated")
def test_levels_maps_and_pairs_are_made_inside_a_graph() -> None:
    both = twins(made_inside)
    # of another density, so that lists and coarser levels outgrow their room; of one site above
    extents = 24, 24, 24, 24, 60, 24, 12, 60, 3, 24
    for seed, extent in enumerate(extents):
        for net in both:
            net.zero_grad()
            size = 30 if extent == 3 else 160
            x = cloud(size, seed, extent)[0]
            loss_of(net(x.replace(x.features.double()))).backward()
        same(*both)
    places = [one for steps in both[0]._steps for one in steps.places.values()]
    assert both[0].graphs_reason is None
    assert all(isinstance(one.memory, VoxelMemory) for one in places)
    assert replays(both[0]) >= 5


def test_gradients_add_up_and_reach_the_features() -> None:
    both = twins(small)
    for turn in range(AFTER + 3):
        given = []
        for net in both:
            x = batch(net, 1)
            x.features.requires_grad_()
            loss_of(net(x)).backward()
            if turn % 2:
                net.zero_grad(set_to_none=turn == 1)
            given.append(x.features.grad)
        torch.testing.assert_close(*given, rtol=1e-6, atol=1e-9)
        same(*both)
    assert replays(both[0]) == 4


def test_several_forward_passes_before_one_backward() -> None:
    both = twins(small)
    for _ in range(AFTER + 2):
        for net in both:
            one, two, three = (net(batch(net, seed)) for seed in (1, 2, 1))
            (loss_of(one) + 2 * loss_of(two) + 3 * loss_of(three)).backward()
        same(*both)
    assert all(steps.replays >= 3 for steps in both[0]._steps)  # and the third pass eagerly
    kept = [tensors(net(batch(net, 1))) for net in both]
    for _ in range(3):  # outputs without a backward are never overwritten
        for net in both:
            net(batch(net, 2))
    for one, two in zip(*kept, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("clear", [True, False])
def test_gradients_in_place_lie_where_the_step_before_had_them(clear: bool) -> None:
    both = twins(small)
    both[0].start_graphs(capture=rerun, edges=EDGES, after=1, in_place=True)
    places = []
    for turn in range(5):
        for net in both:
            if clear or turn == 3:
                net.zero_grad()
            loss_of(net(batch(net, 7 * turn))).backward()
        same(*both)
        places.append([one.grad.data_ptr() for one in both[0].parameters()])
    assert replays(both[0]) == 5
    assert len(both[0]._steps[0].places) > 1  # captured while gradients were held
    assert (places[0] == places[1] == places[4]) == clear
    assert places[0] == places[3]


def test_gradients_of_gradients_and_a_second_backward_are_computed_anew() -> None:
    both = twins(small)
    for _ in range(AFTER + 1):
        for net in both:
            net.zero_grad()
            x = batch(net, 1)
            x.features.requires_grad_()
            loss = loss_of(net(x))
            (slope,) = torch.autograd.grad(loss, x.features, create_graph=True)
            loss = (slope * slope).sum() + loss
            loss.backward(retain_graph=True)
            loss.backward()
        same(*both)
    assert replays(both[0])


def frozen(net: Any) -> None:
    net.stem.weight.requires_grad_(False)


def moved(net: Any) -> None:
    net.stem.weight.data = net.stem.weight.data.clone()


@pytest.mark.parametrize("change", [doubled, frozen, moved])
def test_changes_of_the_network_are_seen(change: Callable[[Any], None]) -> None:
    both = twins(small)
    for turn in range(2 * AFTER + 4):
        for net in both:
            if turn == AFTER + 1:
                change(net)
            net.zero_grad()
            loss_of(net(batch(net, 1))).backward()
        same(*both)
    assert replays(both[0]) == 2 if change is doubled else replays(both[0]) > 4


@pytest.mark.gpu
def test_a_loop_on_a_device_learns_and_keeps_its_memory() -> None:
    torch.manual_seed(0)
    net: Any = MinkUNet42(4, 3, 0.25).cuda().train()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    points = ((surface(20_000) + torch.rand(20_000, 3)) * 0.07).cuda()
    features = torch.randn(20_000, 4).cuda()
    losses, held = [], []
    for turn in range(60):
        x = pcnn.voxelize(points, features, voxel_size=0.1)
        labels = (x.coords[:, 1] // 8 % 3).long()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(net(x).features.float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if turn in (15, 59):
            torch.cuda.synchronize()
            held.append(torch.cuda.memory_reserved())
    assert net.graphs_reason is None
    assert replays(net) > 50
    assert float(losses[-1]) < float(losses[0])
    assert held[1] <= 1.05 * held[0]
