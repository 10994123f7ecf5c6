"""Plans in rooms of fixed size for engines that group slots: the lists of exact size, apart."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from pcnn.models import MinkUNet42, ResNet18, SparseResNet21
from pcnn.ops import resolve
from pcnn.ops.room import WaitsForDevice
from tests.maps import conftest
from tests.ops.test_device_plan import cells_on
from tests.ops.test_plan_rooms import in_room, larger, levels_of

device = conftest.device

MODELS: dict[str, Callable[..., nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.125),
    "sparse_resnet21": partial(SparseResNet21, width=0.25),
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("engine", ["torchsparse", "minuet"])
def test_rooms_hold_the_lists_of_exact_size(device: torch.device, engine: str, model: str) -> None:
    net = MODELS[model](engine=engine).to(device).eval()
    planner, cells = net.planner, cells_on(device)
    exact = planner.voxelize(cells, 3)
    room = larger(planner.on_voxels.room_of(exact))
    in_room(planner, cells, room)  # copies what it needs of the host
    grid, seen = in_room(planner, cells, room)
    assert room.sizes.holds(seen)
    assert seen.pairs == planner.on_voxels.room_of(exact).sizes.pairs
    assert planner.is_planned(grid, False)
    sites = list(zip(levels_of(planner, grid), levels_of(planner, exact), strict=True))
    for entry in planner.recipe.maps:
        ends = sites[entry.source], sites[entry.target]
        fixed, built = (a.cached_map(b, entry.kernel) for a, b in zip(*ends, strict=True))
        for one, other in ((fixed, built), (fixed.transpose(), built.transpose())):
            if ("by_in", one.flipped) not in other.edges.layouts:
                continue
            moved = (one.layout("pairs")[2] - other.layout("pairs")[2]).to(device)
            for name in ("by_in", "by_out"):
                position, slot, rows = one.layout(name)
                wanted, wanted_slot, wanted_rows = other.layout(name)
                many, last = len(wanted), len(wanted_rows)
                assert torch.equal(rows[:last], wanted_rows)
                assert (rows[last:] == many).all()
                assert torch.equal(slot[:many], wanted_slot)
                assert torch.equal(position[:many], wanted + moved[wanted_slot.long()])
            assert torch.equal(one.layout("identity_slot")[0], other.layout("identity_slot")[0])
            ends_of = one.layout("pairs")[2]
            assert (ends_of.diff() >= other.layout("pairs")[2].diff()).all()


@pytest.mark.usefixtures("emulated")
def test_a_slot_beyond_its_room_leaves_a_map_without_triplets() -> None:
    planner = MODELS["minkunet42"](engine="minuet").eval().planner
    cells = cells_on(torch.device("cpu"))
    room = planner.on_voxels.room_of(planner.voxelize(cells, 3))
    few = replace(room.sizes, pairs=(room.sizes.pairs[0] - 1, *room.sizes.pairs[1:]))
    grid, seen = in_room(planner, cells, replace(room, sizes=few))
    assert seen.pairs == room.sizes.pairs
    assert not few.holds(seen)
    built = grid.cached_map(grid, planner.recipe.maps[0].kernel)
    for name in ("by_in", "by_out"):
        assert not built.layout(name)[2].any()
    empty, _ = in_room(planner, cells[:0], larger(room))
    assert not int(empty.count)


@pytest.mark.usefixtures("emulated")
def test_rooms_of_other_lists_are_refused() -> None:
    cells = cells_on(torch.device("cpu"))
    for engine in (resolve("torchsparse", locality=False), resolve("torchsparse", search="grid")):
        planner = MODELS["minkunet42"](engine=engine).eval().planner
        with pytest.raises(WaitsForDevice, match=r"number of triplets|length is counted"):
            planner.on_voxels.room_of(planner.voxelize(cells, 3))
    planner = ResNet18(width=0.125, engine="minuet").eval().planner
    with pytest.raises(WaitsForDevice, match="reads pairs of a map"):
        planner.on_voxels.room_of(planner.voxelize(cells, 3))
