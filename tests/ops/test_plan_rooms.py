"""Plans in rooms of fixed size: those of exact size, with spare rows behind them."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.geometry import VoxelGrid
from pcnn.geometry.packing import SENTINEL
from pcnn.kernels.streams import read_copy
from pcnn.ops import Planner
from pcnn.ops.device_plan import Room
from tests.maps import conftest
from tests.maps.guarded import guarded
from tests.ops.test_device_plan import MODELS, cells_on, reading
from tests.waits import nothing_waits

device = conftest.device

SPARE = 37
CPU = torch.device("cpu")


def larger(room: Room) -> Room:
    rows = tuple(n + SPARE + place for place, n in enumerate(room.rows))
    return replace(room, points=room.points + SPARE, rows=rows)


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
        grid, report = plan.in_room(*given, 3, room)
    return grid, plan.fixed.seen(read_copy(report), 3)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("way", ["whole", "bits", "sorted"])
def test_equal_those_of_exact_size(
    device: torch.device, model: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = Planner(MODELS[model](engine=reading("steps")))
    cells = cells_on(device)
    exact = planner.voxelize(cells, 3)
    plan = planner.on_voxels
    needed = plan.fixed.room_of(exact)
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
    levels_of = planner.recipe.levels_of
    pairs = list(zip(levels_of(grid), levels_of(exact), strict=True))
    for number, (fixed, level) in enumerate(pairs):
        assert fixed.rows > level.rows
        assert fixed.count is not None
        assert int(fixed.count) == level.rows
        assert torch.equal(fixed.keys[: level.rows], level.keys)
        assert (fixed.keys[level.rows :] == SENTINEL).all()
        if number:
            assert torch.equal(fixed.inverse[: len(level.inverse)], level.inverse)
    for entry in planner.recipe.maps:
        ends = pairs[entry.source], pairs[entry.target]
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
def test_cells_that_keys_do_not_hold_are_refused() -> None:
    planner = Planner(MODELS["minkunet42"](engine=reading("steps")))
    room = larger(planner.on_voxels.fixed.room_of(planner.voxelize(cells_on(CPU), 3)))
    for cell, rule in (
        ([0, 0, 1 << 20, 0], r"y leaves -131072\.\.131071"),
        ([0, 131030, 0, 0], r"plan: .* kernel 42 more"),
        ([3, 0, 0, 0], r"batch indices 0\.\.3 do not fit 3 clouds"),
    ):
        cells = torch.tensor([cell], dtype=torch.int32)
        with pytest.raises(ValueError, match=rule):
            in_room(planner, cells, room)
        with pytest.raises(ValueError, match=rule):
            planner.voxelize(cells, 3)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("words", [True, False])
def test_a_cloud_that_does_not_fit_has_no_sites(
    level: int, words: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, cells = Planner(MODELS["minkunet42"](engine=reading("steps"))), cells_on(CPU)
    needed = planner.on_voxels.fixed.room_of(planner.voxelize(cells, 3))
    rows = [n - (place == level) for place, n in enumerate(needed.rows)]
    room = replace(needed, rows=tuple(rows), words=needed.words * words, whole=False)
    grid, seen = in_room(planner, cells, room, monkeypatch)
    assert not room.holds(seen)
    for made in planner.recipe.levels_of(grid)[level:]:
        assert int(made.count) == 0
