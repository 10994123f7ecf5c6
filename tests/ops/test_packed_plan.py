"""Plans of networks by z-delta search: every layout that layers read, with one wait."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from pcnn.geometry import VoxelGrid
from pcnn.maps import ZDelta
from pcnn.models import MinkUNet42, SparseResNet21
from pcnn.ops import Planner, device_plan
from pcnn.ops.room import WaitsForDevice
from pcnn.tensor import SparseTensor
from tests.maps import conftest
from tests.maps.guarded import guarded
from tests.ops.test_device_plan import cells_on, check, spira
from tests.ops.test_plan_rooms import in_guarded_room, in_room, larger, levels_of
from tests.waits import nothing_waits

device, reversed_blocks = conftest.device, conftest.reversed_blocks


MODELS: dict[str, Callable[..., nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.125),
    "sparse_resnet21": partial(SparseResNet21, width=0.25),
}


@pytest.mark.usefixtures("emulated")
def test_every_map_is_written_as_its_own_layers_read_it() -> None:
    net = MODELS["minkunet42"](engine=spira(3))
    for number, layer in enumerate(m for m in net.modules() if hasattr(m, "engine")):
        layer.engine = spira(number % 5)
    planner = Planner(net)
    check(planner, planner.voxelize(cells_on(torch.device("cpu")), 3), False)


@pytest.mark.parametrize("model", MODELS)
def test_a_plan_waits_once_and_searches_in_one_launch(
    device: torch.device, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner(MODELS[model](engine=spira(3)).to(device))
    cells = cells_on(device)
    planner.voxelize(cells, 3)
    waits: list[int] = []
    searches: list[int] = []
    read, search = device_plan.read_report, ZDelta.search
    monkeypatch.setattr(device_plan, "read_report", lambda r: waits.append(0) or read(r))
    monkeypatch.setattr(
        ZDelta, "search", lambda own, tasks: searches.append(len(tasks)) or search(own, tasks)
    )
    monkeypatch.setattr(ZDelta, "build", lambda *_: pytest.fail("a map of its own"))
    with nothing_waits(device):
        planner.voxelize(cells, 3)
    symmetric = sum(entry.source == entry.target for entry in planner.recipe.maps)
    assert len(waits) == len(searches) == 1
    assert symmetric <= searches[0] <= len(planner.recipe.maps)


def test_maps_of_32_bit_keys_are_built_one_by_one(device: torch.device) -> None:
    planner = Planner(MODELS["minkunet42"](engine=spira(3, 32)).to(device))
    cells = cells_on(device)[:, 1:]
    far = cells + torch.tensor([-90_000, 70_000, 100_000], dtype=torch.int32, device=device)
    for cloud in (cells, far):
        one = torch.cat([torch.zeros_like(cloud[:, :1]), cloud], 1)
        grid = planner.voxelize(one)
        check(planner, grid, False)
    check(planner, planner(VoxelGrid(grid.keys.clone(), 1, grid.bound, box=grid.box)), True)
    with pytest.raises(ValueError, match="key_bits=32"):
        planner.voxelize(cells_on(device), 3)
    one[0, 1:] = 0
    with pytest.raises(ValueError, match="key_bits=64"):
        planner.voxelize(one)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("threshold", [0, 2, 3, 9])
def test_rooms_hold_the_layouts_of_exact_size(
    device: torch.device, model: str, threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = MODELS[model](engine=spira(threshold)).to(device).eval()
    planner, cells = net.planner, cells_on(device)
    exact = planner.voxelize(cells, 3)
    needed = planner.on_voxels.room_of(exact)
    room = larger(needed)
    grid, seen = in_guarded_room(planner, cells, room, monkeypatch)
    assert room.sizes.holds(seen)
    assert seen.pairs == needed.sizes.pairs
    assert planner.is_planned(grid, False)
    sites = list(zip(levels_of(planner, grid), levels_of(planner, exact), strict=True))
    for entry in planner.recipe.maps:
        ends = sites[entry.source], sites[entry.target]
        fixed, built = (a.cached_map(b, entry.kernel) for a, b in zip(*ends, strict=True))
        for name, flipped in entry.layouts(False):
            one, other = (m.edges.layouts[name, flipped] for m in (fixed, built))
            *table, inputs, outputs, counts = one[:5]
            *wanted, wanted_inputs, wanted_outputs, wanted_counts = other[:5]
            assert torch.equal(counts, wanted_counts)
            assert torch.equal(inputs[: len(wanted_inputs)], wanted_inputs)
            assert torch.equal(outputs[: len(wanted_inputs)], wanted_outputs)
            for near, rows in zip(table[:1], wanted[:1], strict=True):
                assert torch.equal(near[: len(rows)], rows)
                assert (near[len(rows) :] == -1).all()
            assert all(map(torch.equal, (*table[1:], *one[5:]), (*wanted[1:], *other[5:])))
    features = torch.randn(grid.rows, net.in_channels, device=device)
    with torch.no_grad():
        outputs = [net(SparseTensor(features, grid))]
        outputs.append(net(SparseTensor(features[: exact.rows].contiguous(), exact)))
    lists = [out if isinstance(out, list) else [out] for out in outputs]
    for one, other in zip(*lists, strict=True):
        own = one.features[: len(other.features)]
        assert torch.equal(own, other.features) or device.type == "cuda"
        assert torch.allclose(own, other.features, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("emulated")
def test_pairs_beyond_the_room_are_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(MODELS["sparse_resnet21"](engine=spira(3)))
    cells = cells_on(torch.device("cpu"))
    room = planner.on_voxels.room_of(planner.voxelize(cells, 3))
    for place, pairs in enumerate(room.sizes.pairs):
        own = [*room.sizes.pairs]
        own[place] = pairs - 1
        few = replace(room, sizes=replace(room.sizes, pairs=tuple(own)))
        with guarded(monkeypatch):
            grid, seen = in_room(planner, cells, few)
        assert seen.pairs == room.sizes.pairs
        assert not few.sizes.holds(seen)
        entry = planner.on_voxels._fixed(grid.device, "floor").listing[place]
        planned, levels = planner.recipe.maps[entry.number], levels_of(planner, grid)
        built = levels[planned.source].cached_map(levels[planned.target], planned.kernel)
        *_, counts, _ = built.layout("hybrid:3")
        assert 0 < int(counts.sum()) < pairs


@pytest.mark.usefixtures("emulated")
def test_rooms_of_what_waits_are_refused() -> None:
    cells = cells_on(torch.device("cpu"))
    room = larger(
        (planner := Planner(MODELS["sparse_resnet21"](engine=spira(3)))).on_voxels.room_of(
            planner.voxelize(cells, 3)
        )
    )
    for engine, layouts, why in (
        (spira(3, 32), None, "one map after another"),
        (spira(3), ("pairs",), "reads 'pairs', a list whose length is counted"),
    ):
        planner = Planner(MODELS["sparse_resnet21"](engine=engine), layouts)
        with pytest.raises(WaitsForDevice, match=why):
            in_room(planner, cells, room)
