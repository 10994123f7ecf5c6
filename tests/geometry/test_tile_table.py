"""Tiles stand for the table they were made from."""

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap
from pcnn.geometry.kernel_map import EdgeSet
from pcnn.geometry.slot_tiles import table_of_tiles
from pcnn.maps import SortedSearch, Windowed
from tests.clouds import surface_grid

NAMES = ("table", "masks", "counts", "offsets", "pairs")


def built(rows: int, size: int, stride: int = 1) -> KernelMap:
    grid, kernel = surface_grid(rows), Kernel.of(size, stride)
    return grid.map_to(grid.strided(kernel), kernel, SortedSearch())


@pytest.mark.parametrize("name", ["tiles", "section_tiles"])
@pytest.mark.parametrize(
    ("rows", "size", "stride"), [(400, 3, 1), (300, 5, 1), (300, 2, 2), (0, 3, 1), (1, 3, 1)]
)
def test_tiles_give_the_table_back(name: str, rows: int, size: int, stride: int) -> None:
    for view in (built(rows, size, stride), built(rows, size, stride).transpose()):
        wanted = view.layout("table")[0]
        view.layout(name)
        assert torch.equal(table_of_tiles(view), wanted)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
def test_every_layout_comes_back_on_both_sides(
    native: bool, side: bool, stride: int, request: pytest.FixtureRequest
) -> None:
    if native:
        request.getfixturevalue("emulated")
    grid, kernel = surface_grid(150), Kernel.of(3, stride)
    builder = Windowed() if native else SortedSearch()
    truth, view = (builder.build(grid, grid.strided(kernel), kernel) for _ in range(2))
    view.layout("table")
    (view.transpose() if side else view).layout("tiles")
    view.drop_tables()
    assert not view.has("table")
    left = dict(view.edges.layouts)
    for flipped in (False, True):
        for name in NAMES:
            view.edges.layouts.clear()
            view.edges.layouts.update(left)
            mine, wanted = (m.transpose() if flipped else m for m in (view, truth))
            for a, b in zip(mine.layout(name), wanted.layout(name), strict=True):
                assert torch.equal(a.long(), b.long()), (name, flipped)


def test_a_map_without_tiles_keeps_its_table() -> None:
    view = built(100, 3)
    table = view.layout("table")
    view.drop_tables()
    assert view.layout("table") is table


def test_a_map_that_holds_nothing_says_so() -> None:
    empty = KernelMap(EdgeSet((3, 3), 27, (True, True), False))
    for name in ("pairs", "table", "masks", "counts", "tiles"):
        with pytest.raises(ValueError, match="neither pairs nor a table"):
            empty.layout(name)
