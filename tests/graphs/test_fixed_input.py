"""Networks in memory of fixed size compute what they compute on exact tensors."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.sizes import Edges, Planned, Sizes
from pcnn.losses import CrossEntropy
from pcnn.models import SPVCNN, ResUNetBN2C
from pcnn.nn import (
    AvgPool3d,
    Conv3d,
    ConvTranspose3d,
    FeatureWise,
    GlobalMaxPool,
    MaxPool3d,
    PlannedModule,
)
from pcnn.ops import Engine
from pcnn.tensor import SparseTensor
from tests.graphs.graphed import ROWS, TILES, cloud, points

EDGES = Edges(128, 1.3)


class Pools(PlannedModule):
    """Kernels that tile space, every pooling, and what leads back."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv3d(2, 4, (3, 1, 3), engine=ROWS)
        self.down, self.norm = Conv3d(4, 4, 2, 2, engine=ROWS), FeatureWise(nn.BatchNorm1d(4))
        self.pools = nn.ModuleList([MaxPool3d(3, 2), AvgPool3d(3, 2), AvgPool3d(2, 2)])
        self.back = ConvTranspose3d(4, 4, 3, 2, engine=ROWS)
        self.up = ConvTranspose3d(4, 3, 2, 2, engine=ROWS)
        self.whole = GlobalMaxPool()

    def forward(self, x: SparseTensor) -> SparseTensor:
        fine = self.stem(x)
        middle = self.norm(self.down(fine))
        pooled = [pool(middle) for pool in self.pools]
        low = pooled[0].replace(sum(one.features for one in pooled))
        y = self.up(self.back(low, middle), fine)
        return y.replace(y.features + self.whole(low).mean())


def resunet() -> PlannedModule:
    return ResUNetBN2C(2, 3, 5, False, 0.125, ROWS)


def spvcnn(engine: Engine = TILES) -> SPVCNN:
    return SPVCNN(2, 3, 0.125, dropout=0.0, engine=engine)


def on_voxels(number: int, seed: int) -> tuple[SparseTensor, Tensor]:
    x, labels = cloud(number, seed)
    return x.replace(x.features.double()), labels


def made(make: Any) -> Any:
    torch.manual_seed(0)
    return make().double()


def planned(net: Any, x: SparseTensor, backward: bool = True) -> Planned:
    return Planned.of(net.planner.recipe_on(net.planner(x.geometry, backward)), x, backward)


def held(net: Any, like: Planned, room: Sizes | None = None, backward: bool = True) -> FixedInput:
    recipe = net.planner.recipe_on(like.x.geometry)
    return FixedInput(recipe, like, room or like.sizes.room(EDGES), backward)


def step(net: Any, x: SparseTensor, labels: Tensor) -> list[Tensor]:
    """Loss, gradients and buffers; those of features last."""
    features = x.features.detach().requires_grad_()
    loss = CrossEntropy()(net(x.replace(features)).features, labels)
    parameters = [p for p in net.parameters() if p.requires_grad]
    *gradients, entry = torch.autograd.grad(loss, [*parameters, features])
    return [loss.detach(), *gradients, *(buffer.clone() for buffer in net.buffers()), entry]


# points and seed: a larger cloud comes first, so that the others find what it left
CLOUDS = [(230, 1), (90, 2), (230, 3), (12, 4), (200, 5)]


@pytest.mark.parametrize(
    ("make", "batch"), [(resunet, points), (Pools, points), (spvcnn, on_voxels)]
)
def test_steps_equal_exact_ones(make: Any, batch: Any) -> None:
    mine, plain = made(make), made(make)
    clouds = [batch(*cloud) for cloud in CLOUDS]
    inputs = [planned(mine, x) for x, _ in clouds]
    room = functools.reduce(Sizes.joined, (one.sizes.room(EDGES) for one in inputs))
    fixed = held(mine, inputs[0], room)
    for given, (x, labels), again in zip(inputs, clouds, CLOUDS, strict=True):
        fixed.take(given)
        ignored = labels.new_full((len(fixed.tensor) - len(x),), 255)
        *found, own = step(mine, fixed.tensor, torch.cat([labels, ignored]))
        *wanted, entry = step(plain, *batch(*again))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(own[: len(entry)], entry, rtol=1e-9, atol=1e-11)
        assert not own[len(entry) :].any()
        for level, exact in zip(fixed.levels, given.sizes.rows, strict=True):
            assert level.count is not None
            assert int(level.count) == exact
