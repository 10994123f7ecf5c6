"""Pairs within a radius against every pair compared."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pcnn.maps import radius_pairs as module
from pcnn.maps.radius_pairs import radius_pairs
from tests.clouds import surface


def brute_force(
    source: Tensor, source_batch: Tensor, query: Tensor, query_batch: Tensor, reach: object
) -> list[tuple[int, int]]:
    """Every pair compared in float32, as the module's docstring says, in numpy."""
    difference = query.numpy()[:, None, :] - source.numpy()[None, :, :]
    assert difference.dtype == np.float32
    if isinstance(reach, float):
        dx, dy, dz = np.moveaxis(difference, -1, 0)
        with np.errstate(over="ignore"):
            near = (dx * dx + dy * dy) + dz * dz <= np.float32(reach * reach)
    else:
        near = (np.abs(difference) <= np.array(reach, dtype=np.float32)).all(-1)
    near &= query_batch.numpy()[:, None] == source_batch.numpy()[None, :]
    return [(int(i), int(j)) for i, j in zip(*near.nonzero(), strict=True)]


def listed(pairs: tuple[Tensor, Tensor]) -> list[tuple[int, int]]:
    return list(zip(pairs[0].tolist(), pairs[1].tolist(), strict=True))


def scan(n: int, seed: int = 0) -> Tensor:
    """A bumpy surface with sub-cell positions, negative coordinates included, in metres."""
    generator = torch.Generator().manual_seed(seed)
    return (surface(n, seed) + torch.rand(n, 3, generator=generator)).float() * 0.05


def clouds(n: int, batch_size: int, seed: int = 0) -> Tensor:
    return torch.randint(0, batch_size, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("reach", [0.093, (0.075, 0.075, 0.075), (0.03, 0.2, 0.08)], ids=str)
@pytest.mark.parametrize("batch_size", [1, 8])
def test_scans_equal_brute_force(reach: object, batch_size: int) -> None:
    source, query = scan(700), scan(500, seed=5)
    own, other = clouds(700, batch_size), clouds(500, batch_size, seed=3)
    expected = brute_force(source, own, query, other, reach)
    assert listed(radius_pairs(source, own, query, other, reach)) == expected
    itself = brute_force(source, own, source, own, reach)
    assert listed(radius_pairs(source, own, source, own, reach)) == itself
    assert len(itself) > len(source)


@pytest.mark.parametrize("radius", [2.0, 5.0, 3.0**0.5])
def test_ties_exactly_at_the_radius_are_inside(radius: float) -> None:
    # whole numbers: squared distances are exact, and many equal the radius
    points = surface(900, seed=2).float()
    squared = round(radius**2)
    difference = (points[:, None] - points[None]).long()
    expected = (difference.square().sum(-1) <= squared).nonzero()
    found = torch.stack(radius_pairs(points, None, points, None, radius), dim=1)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("n", [0, 1, 2, 33])
@pytest.mark.parametrize("m", [0, 1, 33])
def test_small_clouds(n: int, m: int) -> None:
    source, query = scan(max(n, 1))[:n], scan(max(m, 1), seed=1)[:m]
    own, other = clouds(n, 3), clouds(m, 3, seed=1)
    pairs = radius_pairs(source, own, query, other, 0.15)
    assert listed(pairs) == brute_force(source, own, query, other, 0.15)
    assert pairs[0].dtype == pairs[1].dtype == torch.int64


def test_clouds_without_points_and_queries_far_away() -> None:
    source, query = scan(200), scan(100, seed=1)
    own = clouds(200, 8)
    own[own == 3] = 4
    other = clouds(100, 8, seed=1)
    query[::7] += 1e6
    query[::11] -= 1e30
    expected = brute_force(source, own, query, other, 0.1)
    assert listed(radius_pairs(source, own, query, other, 0.1)) == expected


def test_cells_larger_than_the_radius_when_the_cloud_is_wide() -> None:
    # 2^18 cells of 2R do not span the cloud: cells grow, pairs stay
    points = torch.cat([scan(300) * 1e-3, scan(300) * 1e-3 + 4e3])
    batch = torch.zeros(600, dtype=torch.int64)
    expected = brute_force(points, batch, points, batch, 1e-4)
    assert listed(radius_pairs(points, None, points, None, 1e-4)) == expected


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_blocks_of_queries_do_not_show(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, query = scan(150), scan(90, seed=1)
    query[5:20] += 100.0  # queries without a candidate
    expected = listed(radius_pairs(source, None, query, None, 0.12))
    monkeypatch.setattr(module, "CHUNK", chunk)
    assert listed(radius_pairs(source, None, query, None, 0.12)) == expected
