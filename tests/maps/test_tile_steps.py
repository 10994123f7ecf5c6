"""Steps of tiles: order, sections, room, and what follows from them; torch and kernels alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, grid_of_cells
from pcnn.geometry.tile_steps import STEPS, TILE_ROWS, table_of_steps
from pcnn.maps import SortedSearch
from pcnn.maps.tile_steps import step_views
from tests.clouds import surface_grid, triplets_of
from tests.maps.test_layouts import SINGLE, bare, make, single
from tests.random_maps import random_map
from tests.steps import check_steps, leave_room


@pytest.mark.parametrize("case", SINGLE, ids=str)
def test_steps_stand_for_tables(case: tuple[Any, ...], where: str) -> None:
    device = torch.device("cpu") if where == "emulated" else None
    plain = make(case)
    for side in (False, True):
        view = bare(plain, ("table",), device)
        (view.transpose() if side else view).layout("steps")
        view.drop_tables()
        assert not view.has("table")
        left = dict(view.edges.layouts)
        for flipped in (False, True):
            for name in ("table", "masks", "counts", "offsets", "pairs"):
                view.edges.layouts = dict(left)
                mine, wanted = (m.transpose() if flipped else m for m in (view, plain))
                for a, b in zip(mine.layout(name), wanted.layout(name), strict=True):
                    assert torch.equal(a.long(), b.long()), (name, flipped)


@pytest.mark.parametrize("n", [0, 400])
def test_sparse_maps_of_large_kernels_are_cut_into_sections(n: int, where: str) -> None:
    device = torch.device("cpu") if where == "emulated" else None
    sparse, dense = surface_grid(n), grid_of_cells(torch.cartesian_prod(*[torch.arange(6)] * 3))
    for grid, size, sections in ((sparse, 5, 5 if n else 1), (dense, 5, 1), (sparse, 3, 1)):
        plain = grid.map_to(grid, Kernel.of(size), SortedSearch())
        for turned in (False, True):
            view = bare(plain, ("table",), device)
            view = view.transpose() if turned else view
            found = view.layout("fitting_steps")
            assert len(found[0]) == sections * -(-grid.rows // TILE_ROWS)
            wanted = plain.transpose() if turned else plain
            assert sorted(check_steps(view, found, "fitting_steps")) == sorted(triplets_of(wanted))
            if sections == 1:
                assert found is view.layout("steps")
            table = table_of_steps(found, grid.rows, view.volume)
            assert torch.equal(table, wanted.layout("table")[0])


@pytest.mark.usefixtures("emulated")
def test_many_maps_in_a_few_sorts() -> None:
    """More sections and lists than a sort takes, more tiles than a group counts, empty maps."""
    kernels = [kernel for kernel, _ in SINGLE]
    plain = [single(kernel, 200 >> n % 7) for n, kernel in enumerate(kernels * 3)]
    plain += [random_map(20, 30, 3, 50, seed=n) for n in range(35)]
    plain += [single(Kernel.of((1, 1, 3)), 0)]
    rows = torch.arange(TILE_ROWS * 140)
    patterns = torch.randint(0, 2, (40, 6))[torch.randint(0, 40, (len(rows),))]
    table = torch.where(patterns > 0, rows[:, None], -1).to(torch.int32)
    plain.append(KernelMap.from_table(table, len(rows)))
    cpu = torch.device("cpu")
    views = [bare(one, ("table" if one.one_per_slot else "pairs",), cpu) for one in plain]
    step_views([(view, STEPS[n % 2]) for n, view in enumerate(views)])
    for number, (view, one) in enumerate(zip(views, plain, strict=True)):
        found = check_steps(view, view.layout(STEPS[number % 2]), STEPS[number % 2])
        assert sorted(found) == sorted(triplets_of(one))


def test_steps_are_listed_as_far_as_there_is_room(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = torch.device("cpu") if where == "emulated" else None
    plain = random_map(200, 500, 27, 1200)
    ends = sorted(plain.layout("steps")[2].tolist())
    for room in (*range(ends[1] - 1, ends[1] + 2), ends[-1] - 1, ends[-1]):
        leave_room(monkeypatch, plain, room)
        view = bare(plain, ("pairs",), device)
        _, begin, end, slot, *_ = layout = view.layout("steps")
        assert len(slot) == room
        assert end.max() <= room
        assert torch.equal(begin < 0, end < 0)
        assert sorted(check_steps(view, layout)) == sorted(triplets_of(plain))
