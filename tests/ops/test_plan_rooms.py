"""Plans in rooms of fixed size: those of exact size, with spare rows behind them."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.geometry import KernelMap, VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.models import SparseResNetLarge
from pcnn.ops import Engine, Planner, resolve
from pcnn.ops.device_plan import read_report
from pcnn.ops.recipe import PlannedMap
from pcnn.ops.room_levels import Room, WaitsForDevice
from pcnn.tensor import SparseTensor
from tests.maps import conftest
from tests.maps.guarded import guarded
from tests.ops.test_device_plan import MODELS, cells_on, spira
from tests.waits import nothing_waits

device = conftest.device

SPARE = 37


def larger(room: Room) -> Room:
    rows = tuple(n + SPARE + place for place, n in enumerate(room.rows))
    pairs = tuple(n + SPARE + place for place, n in enumerate(room.pairs))
    return replace(room, points=room.points + SPARE, rows=rows, pairs=pairs)


def padded(cells: Tensor, room: Room) -> tuple[Tensor, Tensor]:
    """Cells with worthless ones behind them, and how many count."""
    worthless = torch.full((room.points - len(cells), 4), 1 << 30, dtype=torch.int32)
    count = torch.tensor([len(cells)], dtype=torch.int32).to(cells.device)
    return torch.cat([cells, worthless.to(cells.device)]), count


def in_room(
    planner: Planner, cells: Tensor, room: Room, patch: pytest.MonkeyPatch | None = None
) -> tuple[VoxelGrid, Room]:
    """With a patch on a CPU: with guards around all memory."""
    plan, given = planner.on_voxels, padded(cells, room)
    guard = guarded(patch) if patch and cells.device.type == "cpu" else nullcontext()
    with guard, nothing_waits(cells.device):
        grid, report = plan.in_room(*given, 3, "floor", room)
    return grid, plan.seen(read_report(report), 3, "floor")


def levels_of(planner: Planner, root: VoxelGrid) -> list[VoxelGrid]:
    found = [root]
    for parent, _, kernel in planner.recipe.levels:
        level = found[parent].level(kernel)
        assert level is not None
        found.append(level)
    return found


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", ["whole", "bits", "sorted"])
def test_equal_those_of_exact_size(
    device: torch.device, model: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner(MODELS[model](), ("steps",))
    cells = cells_on(device)
    exact = planner.voxelize(cells, 3)
    plan = planner.on_voxels
    needed = plan.room_of(exact)
    assert needed.words
    assert needed.whole
    room = larger(needed)
    if way != "whole":
        room = replace(room, words=0 if way == "sorted" else room.words, whole=False)
    grid, seen = in_room(planner, cells, room, monkeypatch)
    assert room.holds(seen)
    assert seen.rows == needed.rows
    assert seen.passes[0] == needed.passes[0]
    assert (seen.passes[1] > 0) == (way == "sorted")
    assert seen.words == needed.words if way == "whole" else seen.words < needed.words
    assert grid.inverse is not None
    assert exact.inverse is not None
    assert torch.equal(grid.inverse[: len(cells)], exact.inverse)
    assert int(grid.inverse.max()) < exact.rows
    pairs = list(zip(levels_of(planner, grid), levels_of(planner, exact), strict=True))
    for number, (fixed, level) in enumerate(pairs):
        assert fixed.rows > level.rows
        assert fixed.count is not None
        assert int(fixed.count) == level.rows
        assert torch.equal(fixed.keys[: level.rows], level.keys)
        assert (fixed.keys[level.rows :] == fixed.key_format.sentinel).all()
        if number:
            assert torch.equal(fixed.inverse[: len(level.inverse)], level.inverse)
    for entry in planner.recipe.maps:
        ends = [pairs[entry.source], pairs[entry.target]]
        fixed, built = (a.cached_map(b, entry.kernel) for a, b in zip(*ends, strict=True))
        for one, other in ((fixed, built), (fixed.transpose(), built.transpose())):
            table, wanted = one.layout("table")[0], other.layout("table")[0]
            assert torch.equal(table[: len(wanted)], wanted)
            assert (table[len(wanted) :] == -1).all()
        out, begin, end, *_ = fixed.layout("steps")
        placed = out[out >= 0]  # a spare row has no place
        assert torch.equal(placed.sort().values.long().cpu(), torch.arange(built.n_out))
        assert ((end - begin).diff() <= 0).all()


@pytest.mark.usefixtures("emulated")
def test_a_cloud_that_does_not_fit_has_no_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner(MODELS["minkunet42"](), ("steps",))
    cells = cells_on(torch.device("cpu"))
    plan = planner.on_voxels
    exact = plan.room_of(planner.voxelize(cells, 3))
    for short in range(len(exact.rows)):
        rows = list(exact.rows)
        rows[short] -= 1
        grid, seen = in_room(planner, cells, replace(exact, rows=tuple(rows)), monkeypatch)
        assert seen.rows[: short + 1] == exact.rows[: short + 1]
        for level in levels_of(planner, grid):
            assert level.count is not None
            assert not int(level.count)
        for entry in planner.recipe.maps:
            levels = levels_of(planner, grid)
            built = levels[entry.source].cached_map(levels[entry.target], entry.kernel)
            assert (built.layout("steps")[0] < 0).all()
    small = replace(exact, words=exact.words - 4096)
    grid, seen = in_room(planner, cells, small)
    assert seen.words == exact.words
    assert not small.holds(seen)
    assert not any(int(level.count) for level in levels_of(planner, grid))
    few = replace(exact, passes=(1, 8), whole=False)
    grid, seen = in_room(planner, cells, few)
    assert seen.passes[0] == exact.passes[0]
    assert not int(grid.count)


@pytest.mark.usefixtures("emulated")
def test_empty_clouds_and_single_sites_have_a_room() -> None:
    planner = Planner(MODELS["minkunet42"](), ("steps",))
    room = larger(planner.on_voxels.room_of(planner.voxelize(cells_on(torch.device("cpu")), 3)))
    for n in (0, 1):
        grid, seen = in_room(planner, torch.zeros(n, 4, dtype=torch.int32), room)
        assert seen.rows == (n,) * len(seen.rows)
        assert [int(level.count) for level in levels_of(planner, grid)] == [n] * 5


@pytest.mark.usefixtures("emulated")
def test_cells_that_keys_do_not_hold_are_refused() -> None:
    planner = Planner(MODELS["minkunet42"](), ("steps",))
    room = larger(planner.on_voxels.room_of(planner.voxelize(cells_on(torch.device("cpu")), 3)))
    for cell, rule in (
        ([0, 0, 1 << 20, 0], r"y leaves -131072\.\.131071"),
        ([0, 131030, 0, 0], r"plan: .* kernel 42 more"),
        ([3, 0, 0, 0], "batch index 3 does not fit 3 clouds"),
    ):
        cells = torch.tensor([cell], dtype=torch.int32)
        with pytest.raises(ValueError, match=rule):
            in_room(planner, cells, room)
        with pytest.raises(ValueError, match=rule):
            planner.voxelize(cells, 3)


@pytest.mark.usefixtures("emulated")
def test_sections_are_cut_as_in_the_room() -> None:
    planner = Planner(SparseResNetLarge(width=0.125), ("fitting_steps",))
    cells = cells_on(torch.device("cpu"))
    exact = planner.voxelize(cells, 3)
    room = planner.on_voxels.room_of(exact)
    for cut in (frozenset(), frozenset({(0, False)})):
        grid, _ = in_room(planner, cells, replace(larger(room), cut=cut))
        built = grid.cached_map(grid, planner.recipe.maps[0].kernel)
        whole = built.layout("fitting_steps") is built.layout("steps")
        assert whole == (not cut)


#: Engines of papers, whose lists have a capacity: (name, networks and the layouts that they read).
PAPERS = [
    *((spira(t), model) for t in (0, 2, 3, 9) for model in ("minkunet42", "sparse_resnet21")),
    *(
        (resolve(e), m)
        for e in ("torchsparse", "minuet")
        for m in ("minkunet42", "sparse_resnet21")
    ),
]


def pairs_of_maps(
    planner: Planner, grid: VoxelGrid, exact: VoxelGrid
) -> Iterator[tuple[PlannedMap, KernelMap, KernelMap]]:
    """Every map of the recipe, in a room and of exact size."""
    sites = list(zip(levels_of(planner, grid), levels_of(planner, exact), strict=True))
    for entry in planner.recipe.maps:
        ends = sites[entry.source], sites[entry.target]
        fixed, built = (a.cached_map(b, entry.kernel) for a, b in zip(*ends, strict=True))
        yield entry, fixed, built


def same_lists(entry: PlannedMap, fixed: KernelMap, built: KernelMap) -> None:
    """A table and lists by slot, as Spira reads them."""
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


def same_places(entry: PlannedMap, fixed: KernelMap, built: KernelMap) -> None:
    """Places of products of grouped slots, as TorchSparse and Minuet read them."""
    for one, other in ((fixed, built), (fixed.transpose(), built.transpose())):
        if ("by_in", one.flipped) not in other.edges.layouts:
            continue
        ends, wanted_ends = one.layout("pairs")[2], other.layout("pairs")[2]
        moved = (ends - wanted_ends).to(one.layout("by_in")[0].device)
        for name in ("by_in", "by_out"):
            position, slot, rows = one.layout(name)
            wanted, wanted_slot, wanted_rows = other.layout(name)
            many, last = len(wanted), len(wanted_rows)
            assert torch.equal(rows[:last], wanted_rows)
            assert (rows[last:] == many).all()
            assert torch.equal(slot[:many], wanted_slot)
            assert torch.equal(position[:many], wanted + moved[wanted_slot.long()])
        assert torch.equal(one.layout("identity_slot")[0], other.layout("identity_slot")[0])
        assert (ends.diff() >= wanted_ends.diff()).all()


@pytest.mark.parametrize(("engine", "model"), PAPERS, ids=lambda one: getattr(one, "name", one))
def test_rooms_hold_the_lists_of_papers(
    device: torch.device, engine: Engine, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = MODELS[model](engine=engine).to(device).eval()
    planner, cells = net.planner, cells_on(device)
    exact = planner.voxelize(cells, 3)
    needed = planner.on_voxels.room_of(exact)
    room, listed = larger(needed), engine.name.startswith("spira")
    in_room(planner, cells, room)  # copies what it needs of the host
    found = in_room(planner, cells, room, monkeypatch) if listed else None
    grid, seen = found or in_room(planner, cells, room)
    assert room.holds(seen)
    assert seen.pairs == needed.pairs
    assert planner.is_planned(grid, False)
    for maps in pairs_of_maps(planner, grid, exact):
        (same_lists if listed else same_places)(*maps)
    if not listed:  # products that group slots are those of a device
        return
    features = torch.randn(grid.rows, net.in_channels, device=device)
    net.graphs = False
    with torch.no_grad():
        outputs = [net(SparseTensor(features, grid))]
        outputs.append(net(SparseTensor(features[: exact.rows].contiguous(), exact)))
    lists = [out if isinstance(out, list) else [out] for out in outputs]
    for one, other in zip(*lists, strict=True):
        own = one.features[: len(other.features)]
        assert torch.allclose(own, other.features, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("engine", [spira(3), resolve("minuet")], ids=lambda one: one.name)
def test_lists_beyond_the_room_are_counted_and_left_out(engine: Engine) -> None:
    planner = Planner(MODELS["sparse_resnet21"](engine=engine))
    cells = cells_on(torch.device("cpu"))
    room = planner.on_voxels.room_of(planner.voxelize(cells, 3))
    for place, pairs in enumerate(room.pairs[:9]):
        if not pairs:
            continue
        own = [*room.pairs]
        own[place] = pairs - 1
        few = replace(room, pairs=tuple(own))
        grid, seen = in_room(planner, cells, few)
        assert seen.pairs == room.pairs
        assert not few.holds(seen)
        if engine.name == "minuet":
            built = grid.cached_map(grid, planner.recipe.maps[0].kernel)
            assert not any(built.layout(name)[2].any() for name in ("by_in", "by_out"))
            continue
        entry = planner.on_voxels._fixed(grid.device, "floor").listing[place]
        planned, levels = planner.recipe.maps[entry.number], levels_of(planner, grid)
        built = levels[planned.source].cached_map(levels[planned.target], planned.kernel)
        *_, counts, _ = built.layout("hybrid:3")
        assert 0 < int(counts.sum()) < pairs


#: Networks that wait: their engine, layouts that are asked for, downsampling, and why.
WAITING: list[tuple[str, Any, tuple[str, ...] | None, str, str]] = [
    ("minkunet42", None, ("pairs",), "floor", "a list whose length is counted"),
    ("minkunet42", None, ("steps",), "reached", "counted one by one"),
    ("minkunet42", Engine("sorted", SortedSearch()), None, "floor", "for one map after another"),
    ("sparse_resnet21", spira(3, 32), None, "floor", "one map after another"),
    ("sparse_resnet21", spira(3), ("pairs",), "floor", "reads 'pairs', a list whose length"),
    ("minkunet42", resolve("torchsparse", locality=False), None, "floor", "length is counted"),
    ("minkunet42", resolve("torchsparse", search="grid"), None, "floor", "triplets"),
    ("resnet18", resolve("minuet"), None, "floor", "reads pairs of a map"),
]


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("model", "engine", "layouts", "sites", "why"), WAITING)
def test_plans_that_wait_say_why(
    model: str, engine: Any, layouts: tuple[str, ...] | None, sites: str, why: str
) -> None:
    plan = Planner(MODELS[model](engine=engine), layouts).on_voxels
    cells = cells_on(torch.device("cpu"))
    assert plan.waits(cells.device, sites) is not None
    with pytest.raises(WaitsForDevice, match=why):
        plan.in_room(cells, cells[:1, 0], 3, sites, Room(1, (1,), (8, 8)))
