"""Networks with parts of their own compute in memory of fixed size what they compute exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.losses import CrossEntropy
from pcnn.models import SPVCNN, LitePTS
from pcnn.runtime.buckets import Edges
from pcnn.runtime.fixed_input import FixedInput
from pcnn.runtime.input_sizes import Sizes
from pcnn.tensor import SparseTensor
from tests.runtime.graphed import ROWS, TILES, cloud, points

EDGES = Edges(128, 1.3)


def spvcnn() -> SPVCNN:
    return SPVCNN(2, 3, 0.125, dropout=0.0, engine=TILES)


def litept(engine: Any = TILES) -> nn.Module:
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
    clouds = [batch(number, seed) for number, seed in ((230, 1), (90, 2))]
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
