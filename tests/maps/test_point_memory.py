"""Dense clouds on native points: refused in time, and before they take memory."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.errors import DenseCloudError
from pcnn.geometry import Kernel, PointSet, point_set_of
from pcnn.maps import point_cells, point_memory
from pcnn.maps.point_memory import map_bytes
from pcnn.maps.radius import RadiusSearch, counted_maps

K3 = Kernel.of(3)


def uniform(n: int, *, edge: float, seed: int = 0) -> Tensor:
    return torch.rand(n, 3, generator=torch.Generator().manual_seed(seed)) * edge


def crowded(memory: float | None, n: int = 600) -> PointSet:
    """A sparse sheet, and ``n`` points within 5 cm far from zero."""
    sheet = torch.cat([uniform(500, edge=5.0)[:, :2], torch.zeros(500, 1)], 1)
    dense = uniform(n, edge=0.05) + torch.tensor([1.01, 2.02, 3.03])
    points = torch.cat([sheet, dense]).double() + torch.tensor([4.5e5, -5.4e6, 100.0])
    batch = torch.cat([torch.zeros(500), torch.ones(n)]).long()
    return point_set_of(points, batch, 2, 0.1, memory=memory)


def test_the_budget_is_exact_and_an_error_says_what_helps() -> None:
    """A byte less than a map takes is refused."""
    points = crowded(None)

    def build(memory: float) -> int:
        given = replace(points, memory=memory)
        return RadiusSearch().build(given, given, K3).triplets

    found = build(100.0)
    taken = map_bytes(found, (points.rows, points.rows), K3.volume, "cpu")
    assert build(taken / 1e9) == found
    with pytest.raises(DenseCloudError) as raised:
        build((taken - 1) / 1e9)
    text = str(raised.value)
    for part in (f"{found:,} triplets or more", "geometry.thin=0.0333"):
        assert part in text


@pytest.mark.parametrize(
    ("points", "memory", "most"),
    [
        # a million points in a cell are 10^12 pairs: no time is spent on them
        (torch.full((20_000, 3), 1.23), 0.1, 0),
        (uniform(20_000, edge=1e-3), 0.1, 0),
        # 2.25 million triplets: listing ends where the budget does
        (uniform(1500, edge=0.05), 0.02, 1_000_000),
    ],
)
def test_little_is_compared_of_what_is_refused(
    points: Tensor, memory: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []
    within = point_cells.within_reach
    monkeypatch.setattr(
        point_cells, "within_reach", lambda *a: compared.append(len(a[0][0])) or within(*a)
    )
    monkeypatch.setattr(point_cells, "CHUNK", 1 << 16)
    dense = point_set_of(points, voxel_size=0.1, memory=memory)
    with pytest.raises(DenseCloudError, match="triplets" if most else "400,000,000 pairs"):
        RadiusSearch().build(dense, dense, K3)
    assert sum(compared) <= most


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("memory", "slot", "message"),
    [
        (0.0012, None, r"have [1-9][\d,]* triplets or more"),
        (0.0001, None, "pairs were to be compared"),
        (None, 1000, "triplets"),  # a slot has more than 32 bits count
    ],
)
def test_a_device_refuses_with_the_wait_that_it_has(
    memory: float | None, slot: int | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    points, waits = crowded(memory), []
    if slot is not None:
        monkeypatch.setattr(point_memory, "MOST_OF_SLOT", slot)
    if memory == 0.0001:  # the kernel that counts looks at the crowd first, and counts nothing
        found, crowd = counted_maps([(points, points, K3)])[0].crowd.tolist()
        assert found == 0
        assert crowd >= 600 * 600
    read = point_memory.read_copy
    monkeypatch.setattr(point_memory, "read_copy", lambda n: waits.append(1) or read(n))
    with pytest.raises(DenseCloudError, match=message):
        RadiusSearch().build(points, points, K3)
    assert len(waits) == 1
