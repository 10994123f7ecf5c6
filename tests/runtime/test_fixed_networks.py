"""Networks with parts of their own compute in memory of fixed size what they compute exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.dataflows.output_stationary import OutputStationary
from pcnn.losses import CrossEntropy
from pcnn.maps import Windowed
from pcnn.models import SPVCNN, LitePTS
from pcnn.ops import Engine
from pcnn.runtime.buckets import Edges
from pcnn.runtime.fixed_input import FixedInput
from pcnn.runtime.input_sizes import Sizes
from pcnn.tensor import SparseTensor
from tests.ops.test_device_plan import cells_on
from tests.ops.test_plan_rooms import in_room, larger
from tests.runtime.graphed import ROWS, TILES, cloud, points

EDGES = Edges(128, 1.3)


def spvcnn(engine: Engine = TILES) -> SPVCNN:
    return SPVCNN(2, 3, 0.125, dropout=0.0, engine=engine)


def litept(engine: Engine = TILES) -> nn.Module:
    return LitePTS(2, 3, 0.125, 16, drop_path=0.0, shuffle_orders=False, engine=engine)


def on_voxels(number: int, seed: int) -> tuple[SparseTensor, Tensor]:
    x, labels = cloud(number, seed)
    return x.replace(x.features.double()), labels


@pytest.mark.parametrize(
    ("make", "batch"),
    [(spvcnn, on_voxels), (litept, on_voxels), (lambda: litept(ROWS), points)],
    ids=["spvcnn", "litept", "litept on points"],
)
def test_steps_equal_exact_ones(
    make: Callable[[], Any], batch: Callable[[int, int], tuple[SparseTensor, Tensor]]
) -> None:
    torch.manual_seed(0)
    net = make().double()
    clouds = [batch(number, seed) for number, seed in ((120, 1), (60, 2))]
    for x, _ in clouds:
        net.planner(x.geometry, True)
    recipe = net.planner.recipe_on(clouds[0][0].geometry)
    rooms = [Sizes.of(recipe, x, True).room(EDGES) for x, _ in clouds]
    fixed = FixedInput(recipe, clouds[0][0], rooms[0].joined(rooms[1]), True)
    for x, labels in clouds:
        fixed.take(x, {"labels": (labels, 255)})
        found = []
        for one, own in ((x, labels), (fixed.tensor, fixed.beside["labels"])):
            # both from the same running statistics
            state = {key: value.clone() for key, value in net.state_dict().items()}
            loss = CrossEntropy()(net(one).features, own)
            grads = torch.autograd.grad(loss, list(net.parameters()))
            found.append([loss.detach(), *grads, *(b.clone() for b in net.buffers())])
            net.load_state_dict(state)
        for exact, spare in zip(*found, strict=True):
            torch.testing.assert_close(spare, exact, rtol=1e-7, atol=1e-9)


@torch.no_grad()
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("make", [spvcnn, litept])
def test_inference_in_a_room_equals_that_of_exact_size(make: Callable[[Engine], Any]) -> None:
    torch.manual_seed(0)
    net = make(Engine("windows", Windowed(), OutputStationary(sections=False))).double().eval()
    cells = cells_on(torch.device("cpu"))
    exact = net.planner.voxelize(cells, 3)
    room = larger(net.planner.on_voxels.room_of(exact))
    grid, seen = in_room(net.planner, cells, room)
    assert room.sizes.holds(seen)
    features = torch.randn(exact.rows, 2, dtype=torch.float64)
    spare = torch.cat([features, features.new_zeros(grid.rows - exact.rows, 2)])
    net.plans_input = False
    wanted, found = net(SparseTensor(features, exact)), net(SparseTensor(spare, grid))
    torch.testing.assert_close(found.features[: exact.rows], wanted.features)
