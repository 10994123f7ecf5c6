"""Ray casting is exact, and the sensor measures like a 64-beam unit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.simulate.materials import Material
from pcnn.datasets.simulate.mesh import join, surface
from pcnn.datasets.simulate.primitives import box, quads
from pcnn.datasets.simulate.raycast import RayCaster
from pcnn.datasets.simulate.streets.sensor import AZIMUTH_STEPS, ELEVATIONS, MIN_RANGE, Sensor

PLANE = surface(
    quads([[[-200, -200, 0], [200, -200, 0], [200, 200, 0], [-200, 200, 0]]]), Material.ASPHALT, 40
)
ORIGIN = np.array([0.0, 0.0, 1.73])


def unit(noise: float = 0.0, dropout: float = 0.0) -> Sensor:
    return Sensor.draw(np.random.default_rng(0), noise, dropout, 1.0, 80.0)


def test_hits_of_a_plane_are_where_geometry_puts_them() -> None:
    directions = unit().directions(np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, atol=1e-12)
    hits = RayCaster(PLANE).cast(ORIGIN, directions)
    down = directions[:, 2] < -0.02
    np.testing.assert_allclose(hits.distance[down], -1.73 / directions[down, 2], rtol=2e-5)
    np.testing.assert_allclose(hits.cosine[down], -directions[down, 2], atol=1e-5)
    up = directions[:, 2] >= 0
    assert np.isinf(hits.distance[up]).all()
    assert (hits.raw_ids[up] == 0).all()
    assert (hits.raw_ids[down] == 40).all()


def test_the_nearer_of_two_scenes_is_seen() -> None:
    wall = surface(box((4.0, -50, -1), (5.0, 50, 10)), Material.BRICK, 50).labelled(50, 7)
    directions = unit().directions(np.random.default_rng(1))
    apart = (
        RayCaster(PLANE).cast(ORIGIN, directions).nearer(RayCaster(wall).cast(ORIGIN, directions))
    )
    together = RayCaster(join([PLANE, wall])).cast(ORIGIN, directions)
    np.testing.assert_array_equal(apart.raw_ids, together.raw_ids)
    np.testing.assert_array_equal(apart.instances, together.instances)
    np.testing.assert_allclose(apart.distance, together.distance, rtol=1e-5)
    assert set(np.unique(apart.raw_ids)) == {0, 40, 50}
    assert set(np.unique(apart.instances)) == {0, 7}


def test_an_empty_scene_returns_nothing() -> None:
    directions = unit().directions(np.random.default_rng(1))
    hits = RayCaster(join([])).cast(ORIGIN, directions)
    assert np.isinf(hits.distance).all()
    scan = unit(0.02, 1.0).measure(np.random.default_rng(2), directions, hits)
    assert scan.points.shape == (0, 4)
    assert scan.labels.shape == (0,)


def test_noise_and_lost_returns() -> None:
    sensor = unit(noise=0.02, dropout=1.0)
    directions = sensor.directions(np.random.default_rng(1))
    hits = RayCaster(PLANE).cast(ORIGIN, directions)
    scan = sensor.measure(np.random.default_rng(2), directions, hits)
    distance = np.linalg.norm(scan.points[:, :3], axis=1)
    near = distance < 12
    true = -ORIGIN[2] * distance[near] / scan.points[near, 2]
    # range noise of 2 cm, plus a little roughness of the asphalt
    assert 0.018 < np.std(distance[near] - true) < 0.030
    assert abs(np.mean(distance[near] - true)) < 0.002
    # far ground is seen at a grazing angle and often lost, near ground hardly ever
    reach = hits.distance
    kept_near = near.sum() / (reach < 12).sum()
    kept_far = (distance > 40).sum() / ((reach > 40) & (reach < 80)).sum()
    assert kept_near > 0.97
    assert 0.2 < kept_far < 0.95
    assert distance.min() > MIN_RANGE
    assert distance.max() < 80.0


def test_scans_lie_on_64_rings(small_set: Path) -> None:
    points = np.fromfile(small_set / "sequences/08/velodyne/000001.bin", np.float32).reshape(-1, 4)
    distance = np.linalg.norm(points[:, :3], axis=1)
    assert distance.min() > MIN_RANGE
    assert 60 < distance.max() <= 82.0
    elevation = np.degrees(np.arcsin(points[:, 2] / distance))
    rings = np.degrees(ELEVATIONS)
    assert (rings[0], rings[-1]) == pytest.approx((2.0, -24.8))
    nearest = np.abs(elevation[:, None] - rings).argmin(1)
    assert np.abs(elevation - rings[nearest]).max() < 0.1
    assert len(np.unique(nearest)) == 64
    # in the order of the official files: ring after ring from the top, counter-clockwise
    assert (np.diff(nearest) >= 0).all()
    assert np.bincount(nearest).max() <= AZIMUTH_STEPS
