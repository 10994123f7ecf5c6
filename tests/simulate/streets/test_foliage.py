"""Leaves let some rays pass, stay where they are, and are found as exactly as asked."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.streets.foliage import Foliage, FoliageCaster, volumes
from pcnn.simulate.streets.trees import bush, conifer, hedge, tree

NOWHERE = np.zeros(3)


def bundle(count: int, start: float = -20.0) -> tuple[np.ndarray, np.ndarray]:
    """Parallel rays along +x, spread over 2 m x 2 m about the axis."""
    rng = np.random.default_rng(0)
    origins = np.column_stack([np.full(count, start), rng.uniform(-1, 1, (count, 2))])
    return origins, np.tile([1.0, 0.0, 0.0], (count, 1))


def cast(foliage: Foliage, origins: np.ndarray, rays: np.ndarray, limit: float = np.inf):
    return FoliageCaster(foliage, NOWHERE).cast(origins, rays, np.full(len(rays), limit))


def slab(density: float, depth: float = 1.0) -> Foliage:
    return volumes((0, 0, 0), (depth, 5.0, 5.0), density, is_box=True)


def test_sight_fades_with_depth_and_density() -> None:
    origins, rays = bundle(4000)
    passed = {
        (density, depth): np.isinf(cast(slab(density, depth), origins, rays).distance).mean()
        for density in (0.3, 3.0)
        for depth in (0.5, 2.0)
    }
    assert 0.5 < passed[0.3, 0.5] < 0.95
    assert 0.15 < passed[0.3, 2.0] < passed[0.3, 0.5] - 0.1
    assert passed[3.0, 2.0] < 0.05 < passed[3.0, 0.5] < passed[0.3, 0.5]


def test_hits_lie_inside_and_at_many_depths() -> None:
    origins, rays = bundle(4000)
    hits = cast(slab(0.8, 2.0), origins, rays)
    met = np.isfinite(hits.distance)
    x = hits.distance[met] - 20.0
    assert -2.1 < x.min() < -1.8
    assert 1.0 < x.max() < 2.1
    assert np.std(x) > 0.7
    assert (hits.labels[met] == 70).all()
    assert (hits.labels[~met] == 0).all()
    assert 0.2 < hits.cosine.min() < hits.cosine.max() <= 1.0


def test_an_ellipsoid_is_met_where_geometry_puts_it() -> None:
    ball = volumes([[3.0, 0.5, 0.0]], [[1.0, 2.0, 0.5]], 1000.0)
    origins, rays = bundle(3000)
    hits = cast(ball, origins, rays)
    y, z = (origins[:, 1] - 0.5) / 2.0, origins[:, 2] / 0.5
    inside = y**2 + z**2
    assert np.isinf(hits.distance[inside > 1.0]).all()
    met = np.isfinite(hits.distance)
    deep = inside < 0.8
    assert met[deep].mean() > 0.75  # some twigs hold no leaves
    entry = 23.0 - np.sqrt(np.clip(1 - inside, 0, None))
    gap = hits.distance[met] - entry[met]
    assert gap.min() > -0.05
    assert np.median(gap) < 0.1


def test_a_turned_and_shifted_volume_is_the_same_volume() -> None:
    origins, rays = bundle(2000)
    thin = volumes((0, 0, 0), (0.05, 5.0, 5.0), 1000.0, is_box=True)
    turned = thin.moved(4.0, 0.0, 0.0, np.pi / 4)
    hits = cast(turned, origins, rays)
    met = np.isfinite(hits.distance)
    # a wall at 45 degrees through (4, 0)
    np.testing.assert_allclose(hits.distance[met] - 24.0, -origins[met, 1], atol=0.2)
    assert met.mean() > 0.4


def test_leaves_behind_a_wall_are_not_seen() -> None:
    origins, rays = bundle(500)
    assert np.isinf(cast(slab(5.0), origins, rays, limit=15.0).distance).all()


def test_the_same_leaves_are_seen_from_elsewhere() -> None:
    foliage = volumes([[0, 0, 0], [0.4, 0.2, 0.3]], [[1.5, 1.5, 1.0], [1.0, 1.0, 1.0]], 1.0)
    origins, rays = bundle(2000)
    first = cast(foliage, origins, rays)
    later = FoliageCaster(foliage, np.array([7.0, 3.0, 1.0])).cast(
        origins + 2.0 * rays, rays, np.full(2000, np.inf)
    )
    same = np.isclose(first.distance, later.distance + 2.0, atol=0.11) | (
        np.isinf(first.distance) & np.isinf(later.distance)
    )
    assert same.mean() > 0.9


def test_plants_stand_on_the_ground_and_grow() -> None:
    rng = np.random.default_rng(3)
    for plant, low, high in (
        (tree(rng, 2.0), 3.0, 13.0),
        (conifer(rng, 2.0), 3.0, 10.0),
        (bush(rng, 2.0), 0.5, 2.5),
        (hedge(rng, 5.0, 2.0), 0.7, 2.8),
    ):
        top = (plant.leaves.centres + plant.leaves.radii)[:, 2].max()
        assert low < top < high
        assert (plant.leaves.density > 0).all()
        assert (plant.leaves.radii > 0).all()
