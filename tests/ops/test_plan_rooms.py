"""Plans in rooms of fixed size: those of exact size, with spare rows behind them."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.maps import SortedSearch
from pcnn.models import MinkUNet42, SparseResNetLarge
from pcnn.ops import Engine, Planner
from pcnn.ops.device_plan import read_report
from pcnn.ops.room import PlanRoom, Room, WaitsForDevice
from tests.maps import conftest
from tests.maps.guarded import guarded
from tests.ops.test_device_plan import MODELS, cells_on
from tests.waits import nothing_waits

device = conftest.device

SPARE = 37


def larger(room: PlanRoom) -> PlanRoom:
    sizes = room.sizes
    rows = tuple(n + SPARE + place for place, n in enumerate(sizes.rows))
    pairs = tuple(n + SPARE + place for place, n in enumerate(sizes.pairs))
    many = sizes.points + SPARE
    return replace(room, sizes=replace(sizes, points=many, rows=rows, pairs=pairs))


def padded(cells: Tensor, room: PlanRoom) -> tuple[Tensor, Tensor]:
    """Cells with worthless ones behind them, and how many count."""
    spare = room.sizes.points - len(cells)
    worthless = torch.full((spare, 4), 1 << 30, dtype=torch.int32, device=cells.device)
    count = torch.tensor([len(cells)], dtype=torch.int32).to(cells.device)
    return torch.cat([cells, worthless]), count


def in_room(planner: Planner, cells: Tensor, room: PlanRoom) -> tuple[VoxelGrid, Room]:
    plan = planner.on_voxels
    given = padded(cells, room)
    with nothing_waits(cells.device):
        grid, report = plan.in_room(*given, 3, "floor", room)
    return grid, plan.seen(read_report(report), 3, "floor")


def in_guarded_room(
    planner: Planner, cells: Tensor, room: PlanRoom, monkeypatch: pytest.MonkeyPatch
) -> tuple[VoxelGrid, Room]:
    """As `in_room`; on a CPU with guards around all memory."""
    with guarded(monkeypatch) if cells.device.type == "cpu" else nullcontext():
        return in_room(planner, cells, room)


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
    room, needed = larger(plan.room_of(exact)), replace(plan.room_of(exact).sizes, points=0)
    assert needed.words
    assert needed.whole
    if way != "whole":
        words = 0 if way == "sorted" else needed.words
        sizes = replace(room.sizes, words=words, whole=False)
        room = replace(room, sizes=sizes)
    grid, seen = in_guarded_room(planner, cells, room, monkeypatch)
    assert room.sizes.holds(seen)
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
    for short in range(len(exact.sizes.rows)):
        rows = list(exact.sizes.rows)
        rows[short] -= 1
        with guarded(monkeypatch):
            room = replace(exact, sizes=replace(exact.sizes, rows=tuple(rows)))
            grid, seen = in_room(planner, cells, room)
        assert seen.rows[: short + 1] == exact.sizes.rows[: short + 1]
        for level in levels_of(planner, grid):
            assert level.count is not None
            assert not int(level.count)
        for entry in planner.recipe.maps:
            levels = levels_of(planner, grid)
            built = levels[entry.source].cached_map(levels[entry.target], entry.kernel)
            assert (built.layout("steps")[0] < 0).all()
    small = replace(exact, sizes=replace(exact.sizes, words=exact.sizes.words - 4096))
    grid, seen = in_room(planner, cells, small)
    assert seen.words == exact.sizes.words
    assert not small.sizes.holds(seen)
    assert not any(int(level.count) for level in levels_of(planner, grid))
    few = replace(exact, sizes=replace(exact.sizes, passes=(1, 8), whole=False))
    grid, seen = in_room(planner, cells, few)
    assert seen.passes[0] == exact.sizes.passes[0]
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
def test_rooms_of_more_rows_than_cells_have_a_row_for_every_cell() -> None:
    planner = Planner(MODELS["sparse_resnet21"](), ("steps",))
    cells = cells_on(torch.device("cpu")).unique(dim=0)
    exact = planner.on_voxels.room_of(planner.voxelize(cells, 3))
    rows = tuple(len(cells) + 128 * number for number in range(1, 6))
    room = replace(exact, sizes=replace(exact.sizes, points=len(cells), rows=rows))
    told: list[int] = []
    grid, report = planner.on_voxels.in_room(
        *padded(cells, room), 3, "floor", room, lambda order, inverse, rows: told.append(rows)
    )
    assert told == [grid.rows] == [len(cells)]
    assert planner.on_voxels.seen(read_report(report), 3, "floor").rows == exact.sizes.rows


@pytest.mark.usefixtures("emulated")
def test_cells_that_keys_do_not_hold_are_refused() -> None:
    planner = Planner(MODELS["minkunet42"](), ("steps",))
    room = larger(planner.on_voxels.room_of(planner.voxelize(cells_on(torch.device("cpu")), 3)))
    for cell, rule in (
        ([0, 0, 1 << 20, 0], r"y leaves -131072\.\.131071"),
        ([0, 131030, 0, 0], r"plan: .* kernel 42 more"),
        ([3, 0, 0, 0], "batch index 3 does not fit 3 clouds"),
    ):
        with pytest.raises(ValueError, match=rule):
            in_room(planner, torch.tensor([cell], dtype=torch.int32), room)


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


@pytest.mark.usefixtures("emulated")
def test_plans_that_wait_say_why() -> None:
    cells, room = cells_on(torch.device("cpu")), PlanRoom(Room(1, (1,), (8, 8)))
    for planner, downsampling, why in (
        (Planner(MinkUNet42(width=0.125), ("pairs",)), "floor", "a list whose length is counted"),
        (Planner(MinkUNet42(width=0.125), ("steps",)), "reached", "counted one by one"),
        (
            Planner(MinkUNet42(width=0.125, engine=Engine("sorted", SortedSearch())), ("steps",)),
            "floor",
            "for one map after another",
        ),
    ):
        with pytest.raises(WaitsForDevice, match=why):
            planner.on_voxels.in_room(cells, cells[:1, 0], 3, downsampling, room)
