"""Points within a radius and the nearest of them, against all distances and all pairs."""

import pytest
import torch

from pcnn.maps import point_cells
from pcnn.registration.nearest import SortedCells, nearest_within


@pytest.mark.parametrize(("candidates", "table"), [(1 << 21, 0), (50, 1 << 20)])
def test_the_nearest_is_that_of_all_distances(
    candidates: int, table: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_cells, "TABLE", table)
    monkeypatch.setattr(point_cells, "CHUNK", candidates)
    generator = torch.Generator().manual_seed(0)
    for queries, number, radius in ((200, 900, 0.1), (1, 5, 0.3), (70, 3, 0.05), (50, 900, 1.0)):
        query = 3 * torch.rand(queries, 3, generator=generator) - 0.2
        points = torch.rand(number, 3, generator=generator) * 2.5
        points[-1], query[0] = points[0], points[0]  # a tie, and a distance of 0
        gap = (query[:, None] - points).square().sum(2)
        nearest, index = gap.min(1)
        inside = nearest <= radius**2
        distance, found = SortedCells(points, radius).nearest(query, radius)
        wider = SortedCells(points, 1.3 * radius).nearest(query, radius)
        for again in (wider, nearest_within(query, points, radius)):
            for one, other in zip(again, (distance, found), strict=True):
                assert torch.equal(one, other)
        # of two clouds in one search, each query meets its own
        both, clouds = torch.cat([points, points + 0.01]), torch.arange(2).repeat_interleave(number)
        own = torch.arange(queries) % 2
        together = SortedCells(both, 1.3 * radius, clouds, 2).nearest(query, radius, own)[1]
        for cloud in (0, 1):
            alone = SortedCells(both[clouds == cloud], radius).nearest(query[own == cloud], radius)[
                1
            ]
            moved = torch.where(alone < 0, alone, alone + cloud * number)
            assert torch.equal(together[own == cloud], moved)
        assert torch.equal(found, torch.where(inside, index, -1))
        expected = torch.where(inside, nearest.sqrt(), torch.inf)
        torch.testing.assert_close(distance, expected, atol=1e-6, rtol=0)
    assert SortedCells(points[:0], 1.0).nearest(query, 1.0)[1].tolist() == [-1] * len(query)
    assert SortedCells(points, 1.0).nearest(query[:0], 1.0)[0].shape == (0,)
