"""Points within a radius and the nearest of them, against all distances and all pairs."""

import pytest
import torch

from pcnn.maps import point_cells
from pcnn.maps.point_cells import PointCells
from pcnn.registration.cell_search import SortedCells, nearest_in_cells


@pytest.mark.parametrize(("candidates", "table"), [(1 << 21, 0), (50, 1 << 20)])
def test_the_nearest_is_that_of_all_distances(
    candidates: int, table: int, monkeypatch: pytest.MonkeyPatch
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
        distance, found = nearest_in_cells(query, points, radius)
        wider = SortedCells(points, 1.3 * radius)
        for one, other in zip(wider.nearest(query, radius), (distance, found), strict=True):
            assert torch.equal(one, other)
        expected_pairs = PointCells(points, None, radius).pairs(query, None, radius)
        for one, other in zip(wider.within(query, radius), expected_pairs, strict=True):
            assert torch.equal(one, other)
        assert torch.equal(found, torch.where(inside, index, -1))
        expected = torch.where(inside, nearest.sqrt(), torch.inf)
        torch.testing.assert_close(distance, expected, atol=1e-6, rtol=0)
    assert nearest_in_cells(query, points[:0], 1.0)[1].tolist() == [-1] * len(query)
    assert nearest_in_cells(query[:0], points, 1.0)[0].shape == (0,)
    assert SortedCells(points[:0], 1.0).within(query)[0].shape == (0,)
    assert SortedCells(points, 1.0).within(query[:0])[1].shape == (0,)
