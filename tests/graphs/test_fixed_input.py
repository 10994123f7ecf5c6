"""Networks in memory of fixed size compute what they compute on exact tensors."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pcnn.dataflows.gemm import OutputStationary
from pcnn.geometry import steps
from pcnn.graphs.fixed_input import FixedInput
from pcnn.graphs.sizes import Edges, Sizes
from pcnn.losses import CrossEntropy
from pcnn.maps import Windowed
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
from tests.ops.test_device_plan import cells_on
from tests.ops.test_plan_rooms import in_room, larger

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


def held(net: Any, x: SparseTensor, room: Sizes | None = None, backward: bool = True) -> FixedInput:
    recipe = net.planner.recipe_on(net.planner(x.geometry, backward))
    room = Sizes.of(recipe, x, backward).room(EDGES) if room is None else room
    return FixedInput(recipe, x, room, backward)


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
    recipe = mine.planner.recipe_on(mine.planner(clouds[0][0].geometry, True))
    for x, _ in clouds:
        mine.planner(x.geometry, True)
    rooms = [Sizes.of(recipe, x).room(EDGES) for x, _ in clouds]
    fixed = FixedInput(recipe, clouds[0][0], functools.reduce(Sizes.joined, rooms), True)
    for (x, labels), again in zip(clouds, CLOUDS, strict=True):
        assert Sizes.of(recipe, x).fits(fixed.room)
        fixed.take(x)
        ignored = labels.new_full((len(fixed.tensor) - len(x),), 255)
        *found, own = step(mine, fixed.tensor, torch.cat([labels, ignored]))
        *wanted, entry = step(plain, *batch(*again))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(own[: len(entry)], entry, rtol=1e-9, atol=1e-11)
        assert not own[len(entry) :].any()
        for level, exact in zip(fixed.levels, Sizes.of(recipe, x).rows, strict=True):
            assert level.count is not None
            assert int(level.count) == exact


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("make", [resunet, Pools])
def test_inference_holds_what_it_reads_and_no_more(make: Any) -> None:
    net = made(make).eval()
    x, _ = points(230, 1)
    with torch.no_grad():
        fixed = held(net, x, backward=False)
        for number, seed in ((230, 1), (150, 2), (12, 4)):
            x, _ = points(number, seed)
            net.planner(x.geometry, False)
            fixed.take(x)
            found, wanted = net(fixed.tensor).features, net(points(number, seed)[0]).features
            torch.testing.assert_close(found[:number], wanted, rtol=1e-9, atol=1e-11)
    names = {name for built in fixed.levels[0].cached_maps() for name, _ in built.edges.layouts}
    assert "steps" in names
    assert "pairs" not in names


def test_steps_that_are_not_stored_are_read_as_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense cells: memory has room for more steps than the map stores."""
    monkeypatch.setattr(steps, "SPARE_STEPS", 0)
    net = made(resunet)
    x, _ = points(128, 1, cell=0.6)
    fixed = held(net, x)
    fixed.take(x)
    built, own = (
        next(m for m in one.cached_maps() if m.volume == 27)
        for one in (x.geometry, fixed.levels[0])
    )
    begin, end, slots = built.layout("steps")[1:4]
    assert (begin < 0).any()
    found, found_end, held_slots = own.layout("steps")[1:4]
    assert len(held_slots) > len(slots)
    assert torch.equal(found[: len(begin)], begin)
    assert torch.equal(found_end[: len(end)], end)
    assert torch.equal(found[len(begin) :], found_end[len(end) :])


def test_rooms_bound_memory_and_a_larger_cloud_asks_for_more() -> None:
    net = made(resunet)
    x, _ = points(230, 1)
    fixed = held(net, x)
    sizes = Sizes.of(fixed.recipe, x)
    for own, most in zip(sizes.triplets, fixed.room.triplets, strict=True):
        assert own <= most <= 1.3 * 1.15 * own * 256 / 230 + 128
    larger, _ = points(fixed.room.rows[0], 2)
    net.planner(larger.geometry, True)
    assert not Sizes.of(fixed.recipe, larger).fits(fixed.room)
    dense, _ = points(230, 2, cell=0.6)
    net.planner(dense.geometry, True)
    own = Sizes.of(fixed.recipe, dense)
    assert not own.fits(fixed.room)
    joined = own.room(EDGES).joined(fixed.room)
    assert own.fits(joined)
    assert sizes.fits(joined)


def test_other_kinds_of_points_have_no_place() -> None:
    net = made(resunet)
    x, _ = points(230, 1)
    fixed = held(net, x)
    lattice, _ = points(100, 1, cell=0.001)  # no two points in a cell
    other = SparseTensor(lattice.features, replace(lattice.geometry, one_per_cell=True))
    net.planner(other.geometry, True)
    recipe = net.planner.recipe_on(other.geometry)
    assert not Sizes.of(recipe, other).fits(fixed.room)


@torch.no_grad()
@pytest.mark.usefixtures("emulated")
def test_inference_in_a_room_equals_that_of_exact_size() -> None:
    torch.manual_seed(0)
    net: Any = spvcnn(Engine("windows", Windowed(), OutputStationary())).double().eval()
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
