"""Dense clouds on native points: refused in time, and before they take memory."""

import resource
import time

import pytest
import torch
from torch import Tensor

import pcnn
from pcnn.geometry import (
    Kernel,
    Neighbourhood,
    PointSet,
    VoxelGrid,
    grid_of_cells,
    point_set_of,
)
from pcnn.maps import point_cells, point_memory
from pcnn.maps.point_memory import DenseCloudError, densest_cell, map_bytes
from pcnn.maps.radius import RadiusSearch
from pcnn.ops import Planner
from tests.maps.native_points import scan

KERNEL = Kernel.of(3)


def uniform(n: int, *, edge: float, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)) * edge


def crowded(memory: float | None, n: int = 600) -> PointSet:
    """A sparse sheet, and ``n`` points within 5 cm far from zero."""
    sheet = torch.cat([uniform(500, edge=5.0)[:, :2], torch.zeros(500, 1)], 1)
    dense = uniform(n, edge=0.05) + torch.tensor([1.01, 2.02, 3.03])
    points = torch.cat([sheet, dense]).double() + torch.tensor([4.5e5, -5.4e6, 100.0])
    batch = torch.cat([torch.zeros(500), torch.ones(n)]).long()
    return point_set_of(points, batch, 2, 0.1, neighbourhood=Neighbourhood(memory=memory))


def triplets(points: PointSet) -> int:
    return RadiusSearch(memory=100.0).build(points, points, KERNEL).triplets


def test_an_error_names_the_densest_cell_in_the_coordinates_given() -> None:
    points = crowded(1e-4)
    with pytest.raises(DenseCloudError) as raised:
        RadiusSearch().build(points, points, KERNEL)
    text = str(raised.value)
    assert "(450001.050, -5399997.950, 103.050) m of cloud 1" in text
    assert "holds 600 points" in text
    assert "geometry.thin=0.0333" in text
    assert "geometry.memory" in text
    assert densest_cell(points)[2] == 600


def test_the_budget_is_exact() -> None:
    """A byte less than a map takes is refused, and nothing of it was listed."""
    points = crowded(None)
    found = triplets(points)
    taken = map_bytes(found, (points.rows, points.rows), KERNEL.volume, "cpu")
    search = RadiusSearch(memory=taken / 1e9)
    assert search.build(points, points, KERNEL).triplets == found
    with pytest.raises(DenseCloudError, match=f"{found:,} triplets or more"):
        RadiusSearch(memory=(taken - 1) / 1e9).build(points, points, KERNEL)


def test_a_hopeless_cloud_is_refused_without_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million points in a cell are 10^12 pairs: no time is spent on them."""

    def compare(*given: object) -> None:
        raise AssertionError("pairs were compared")

    monkeypatch.setattr(point_cells, "within_reach", compare)
    for points in (torch.full((20_000, 3), 1.23), uniform(20_000, edge=1e-3)):
        dense = point_set_of(points, voxel_size=0.1, neighbourhood=Neighbourhood(memory=0.1))
        with pytest.raises(DenseCloudError, match="400,000,000 pairs were to be compared"):
            RadiusSearch().build(dense, dense, KERNEL)


def test_listing_ends_where_the_budget_does(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    within = point_cells.within_reach
    monkeypatch.setattr(
        point_cells, "within_reach", lambda *a: listed.append(len(a[0][0])) or within(*a)
    )
    monkeypatch.setattr(point_cells, "CHUNK", 1 << 16)
    points = point_set_of(uniform(1500, edge=0.05), voxel_size=0.1)  # 2.25 million triplets
    with pytest.raises(DenseCloudError):
        RadiusSearch(memory=0.02).build(points, points, KERNEL)
    assert 0 < sum(listed) < 1_000_000


@pytest.mark.parametrize("sites", ["nearest", "cell_origin"])
def test_a_plan_is_told_as_a_whole(sites: str) -> None:
    net = pcnn.models.MinkUNet42(in_channels=1, out_channels=2, width=0.25)
    points = uniform(2000, edge=0.3)
    fits = point_set_of(points, voxel_size=0.1, downsampling=sites)
    with torch.no_grad():
        pcnn.plan(net, fits)
    memory = Neighbourhood(memory=1e-3)
    refused = point_set_of(points, voxel_size=0.1, downsampling=sites, neighbourhood=memory)
    with torch.no_grad(), pytest.raises(DenseCloudError, match="densest cell"):
        pcnn.plan(net, refused)
    assert all(built.volume == 8 for built in refused.cached_maps())  # those of cells, unsearched


@pytest.mark.parametrize("kind", ["voxel", "point"])
@pytest.mark.parametrize("backward", [False, True])
def test_a_planner_bounds_what_its_plan_takes(kind: str, backward: bool) -> None:
    net = pcnn.models.MinkUNet42(in_channels=1, out_channels=2, width=0.25)
    points = uniform(2000, edge=1.0)
    geometry: PointSet | VoxelGrid = point_set_of(points, voxel_size=0.05)
    if kind == "voxel":
        geometry = grid_of_cells((points * 20).int())
    planner = Planner(net)
    told = planner.memory(geometry, backward)
    planner(geometry, backward)
    assert geometry.held_bytes() <= told <= 40 * geometry.held_bytes()


@pytest.mark.usefixtures("emulated")
class TestDevice:
    """The same on a device: the host learns the numbers with the wait that it has."""

    def test_a_counted_map_is_refused_before_it_is_listed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        points, waits = crowded(0.0012), []
        read = point_memory.pinned.read_copy
        monkeypatch.setattr(
            point_memory.pinned, "read_copy", lambda numbers: waits.append(1) or read(numbers)
        )
        with pytest.raises(DenseCloudError, match=r"have [1-9][\d,]* triplets or more.*600 points"):
            RadiusSearch().build(points, points, KERNEL)
        assert len(waits) == 1

    def test_a_crowd_is_not_searched(self) -> None:
        """The kernel that counts looks at the crowd first, and counts nothing."""
        points = crowded(0.0001)
        on_device = RadiusSearch().counted(points, points, KERNEL)
        found, crowd = on_device.crowd.tolist()
        assert found == 0
        assert crowd >= 600 * 600
        with pytest.raises(DenseCloudError, match="pairs were to be compared"):
            RadiusSearch().build(points, points, KERNEL)

    def test_slots_beyond_32_bits_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        points = crowded(None)
        monkeypatch.setattr(point_memory, "MOST_OF_SLOT", 1000)
        with pytest.raises(DenseCloudError):
            RadiusSearch().build(points, points, KERNEL)


def sheet(n: int, per_cell: int) -> Tensor:
    """So many points in every cell of a wavy sheet of cells of 0.1 m."""
    side = int((n / per_cell) ** 0.5)
    cells = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    cells = torch.cat([cells, (cells.sum(1, keepdim=True) // 4) % 3], 1)
    return (cells.repeat_interleave(per_cell, 0) + uniform(len(cells) * per_cell, edge=1.0)) * 0.1


HOSTILE = {
    "one cell": (lambda: uniform(1_000_000, edge=0.1), False),
    "1e5 in a millimetre": (lambda: uniform(100_000, edge=1e-3), False),
    "all equal": (lambda: torch.full((1_000_000, 3), 1.23), False),
    "half dense": (
        lambda: torch.cat([uniform(500_000, edge=0.1), sheet(500_000, 2) + 5]),
        False,
    ),
    "one a cell": (lambda: sheet(1_000_000, 1), True),
    "ten a cell": (lambda: sheet(1_000_000, 10), True),
    "63 a cell": (lambda: sheet(1_000_000, 63), False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_million_points_end_in_time(name: str) -> None:
    """In a result or in an error, within 60 s of an idle machine of 2 cores and 8 GB."""
    make, serves = HOSTILE[name]
    net = pcnn.models.MinkUNet42(in_channels=1, out_channels=2, width=0.25)
    start = time.process_time()
    points = point_set_of(make(), voxel_size=0.1)
    try:
        with torch.no_grad():
            pcnn.plan(net, points)
    except DenseCloudError:
        assert not serves
    else:
        assert serves
    assert time.process_time() - start < 120  # of both cores
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8e6  # kB


def test_the_default_budget_fits_the_machine() -> None:
    points = scan(10)
    assert 0 < point_memory.most_bytes(points, None) <= 7_200_000_000
    assert point_memory.most_bytes(points, 2.0) == 2_000_000_000
    with pytest.raises(ValueError, match="memory must be positive"):
        Neighbourhood(memory=0.0)
