"""Triplets by row and the tiles over them, by device kernels, against the torch functions."""

import pytest
import torch

from pcnn.geometry import Kernel, KernelMap, layouts, point_set_of
from pcnn.geometry import row_lists as plain
from pcnn.maps.device_layouts import DEVICE_LAYOUTS
from pcnn.maps.radius import RadiusSearch
from pcnn.maps.row_lists import list_rows
from pcnn.maps.triplets_by_row import rows_from_pairs
from pcnn.ops.conformance import moved, random_map
from tests.dataflows.fan_in import leave_room
from tests.maps.guarded import guarded

pytestmark = pytest.mark.usefixtures("emulated")


def maps() -> list[KernelMap]:
    """Small kernels and large ones, symmetric and not, rows without triplets, empty sides."""
    sizes = ((300, 300, 27, 2000), (700, 900, 125, 3000), (5, 400, 8, 60), (40, 3, 343, 900))
    found = [random_map(*size) for size in sizes]
    found += [random_map(200, 200, 27, 600, symmetric=True), random_map(9, 9, 1, 20)]
    return [*found, random_map(0, 4, 8, 0), random_map(1, 1, 3, 1)]


def both_sides() -> list[KernelMap]:
    return [view for one in maps() for view in (one, one.transpose())]


def agree(found: layouts.Layout, wanted: layouts.Layout) -> None:
    """Equal tensors, as far as steps are defined."""
    assert len(found) == len(wanted) == 6
    ends = wanted[2]
    steps = int(ends[ends <= len(wanted[3])].max())
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        length = steps if place in (3, 4) else len(one)
        assert torch.equal(one[:length], other[:length])


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_triplets_by_row(
    order: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if order == "descending":
        request.getfixturevalue("reversed_blocks")
    for view in both_sides():
        wanted = layouts.rows_csr(view)
        view.layout("counts")
        with guarded(monkeypatch):
            found = rows_from_pairs(view)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_tiles_of_many_maps_at_once(
    order: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if order == "descending":
        request.getfixturevalue("reversed_blocks")
    views = both_sides()
    wanted = [plain.row_lists(view) for view in views]
    with guarded(monkeypatch):
        found = list_rows(views)
    for own, other in zip(found, wanted, strict=True):
        agree(own, other)
    for view, other in zip(views[:3], wanted, strict=False):
        agree(DEVICE_LAYOUTS["row_lists"](view), other)


def test_more_maps_than_a_launch_takes() -> None:
    views = [random_map(20, 30, 3, 50) for _ in range(35)]
    for view, found in zip(views, list_rows(views), strict=True):
        agree(found, plain.row_lists(view))


def test_crowded_slots() -> None:
    points = torch.rand(7, 3).repeat(60, 1)
    source = point_set_of(points, voxel_size=0.4)
    built = RadiusSearch().build(source, source, Kernel.of(3))
    agree(built.layout("row_lists"), plain.row_lists(built))


def test_tiles_are_listed_that_end_within_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    view = random_map(200, 500, 27, 1200)
    _, second, *_, last = plain.row_lists(view)[2].tolist()
    for end in (second, last):
        for room in (end - 1, end, end + 1):
            leave_room(monkeypatch, view, room)
            wanted = plain.row_lists(view)
            with guarded(monkeypatch):
                (found,) = list_rows([moved(view, "cpu")])
            assert found[3].shape[0] == room
            agree(found, wanted)


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    view = random_map(20, 30, 3, 50)
    view.layout("rows_csr")
    monkeypatch.setattr(plain, "MOST_TRIPLETS", 10)
    with pytest.raises(ValueError, match="use the layout pairs"):
        list_rows([view])
    monkeypatch.setattr(layouts, "TABLE_BUDGET_BYTES", 100)
    with pytest.raises(ValueError, match="over the budget"):
        list_rows([view])
