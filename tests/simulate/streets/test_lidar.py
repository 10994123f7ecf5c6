"""Ray casting is exact, and the sensor measures like a 64-beam unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pcnn.simulate.mesh import join, surface
from pcnn.simulate.raycast import Hits, RayCaster
from pcnn.simulate.shapes import block, quads
from pcnn.simulate.streets.drive import Sweep
from pcnn.simulate.streets.lidar import (
    AZIMUTH_STEPS,
    ELEVATIONS,
    HEIGHTS,
    MIN_RANGE,
    Firings,
    Lidar,
    Scan,
    firing_azimuths,
)
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.settings import draw_sensor_settings

CORNERS = [[-200, -200, 0], [200, -200, 0], [200, 200, 0], [-200, 200, 0]]
PLANE = surface(quads(CORNERS), MATERIALS["asphalt"], 40)
ORIGIN = np.array([0.0, 0.0, 1.73])


def unit(noise: float = 0.0, dropout: float = 0.0) -> Lidar:
    chosen = draw_sensor_settings(np.random.default_rng(0), "train")
    chosen = replace(
        chosen,
        range_noise=noise,
        range_bias=0.0,
        roughness=0.0,
        dropout=dropout,
        max_range=80.0,
        blind_shift=90.0,  # hides nothing
    )
    return Lidar.draw(np.random.default_rng(0), chosen)


def test_hits_of_a_plane_are_where_geometry_puts_them() -> None:
    firings = unit().firings(np.random.default_rng(1))
    rays, origins = firings.directions, firings.origins + ORIGIN
    np.testing.assert_allclose(np.linalg.norm(rays, axis=1), 1.0, atol=1e-12)
    hits = RayCaster(PLANE).cast(origins, rays)
    down = rays[:, 2] < -0.02
    np.testing.assert_allclose(hits.distance[down], -origins[down, 2] / rays[down, 2], rtol=2e-5)
    np.testing.assert_allclose(hits.cosine[down], -rays[down, 2], atol=1e-5)
    up = rays[:, 2] >= 0
    assert np.isinf(hits.distance[up]).all()
    assert (hits.labels[up] == 0).all()
    assert (hits.labels[down] == 40).all()


def test_the_nearer_of_two_scenes_is_seen() -> None:
    wall = surface(block((4.0, -50, -1), (5.0, 50, 10)), MATERIALS["brick"], 50).labelled(50, 7)
    rays = unit().firings(np.random.default_rng(1)).directions
    apart = RayCaster(PLANE).cast(ORIGIN, rays).nearer(RayCaster(wall).cast(ORIGIN, rays))
    together = RayCaster(join([PLANE, wall])).cast(ORIGIN, rays)
    np.testing.assert_array_equal(apart.labels, together.labels)
    np.testing.assert_array_equal(apart.instances, together.instances)
    np.testing.assert_allclose(apart.distance, together.distance, rtol=1e-5)
    assert set(np.unique(apart.labels)) == {0, 40, 50}
    assert set(np.unique(apart.instances)) == {0, 7}
    nothing = RayCaster(join([])).cast(ORIGIN, rays)
    assert np.isinf(nothing.distance).all()
    firings = unit().firings(np.random.default_rng(1))
    scan = unit(0.02, 1.0).measure(np.random.default_rng(2), firings, nothing)
    assert (scan.points.shape, scan.labels.shape) == ((0, 4), (0,))
    some = Hits.none(len(rays))
    rows = np.arange(0, len(rays), 7)
    some.put(rows, RayCaster(PLANE).cast(ORIGIN, rays[rows]))
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(some.distance)) % 7, 0)


def plane_seen(sensor: Lidar) -> tuple[Firings, Hits, Scan]:
    firings = sensor.firings(np.random.default_rng(1))
    hits = RayCaster(PLANE).cast(firings.origins + ORIGIN, firings.directions)
    return firings, hits, sensor.measure(np.random.default_rng(2), firings, hits)


def test_noise_and_lost_returns() -> None:
    _, hits, scan = plane_seen(unit(noise=0.02, dropout=1.0))
    distance = np.linalg.norm(scan.points[:, :3], axis=1)
    near = distance < 12
    # the ground lies at -1.73 m; a range error shows in the height by the sine of the angle
    error = (scan.points[near, 2] + ORIGIN[2]) / (ORIGIN[2] / distance[near])
    assert 0.018 < np.std(error) < 0.024
    assert abs(np.mean(error)) < 0.002
    # far ground is seen at a grazing angle and often lost, near ground hardly ever
    reach = hits.distance
    kept_near = near.sum() / (reach < 12).sum()
    kept_far = (distance > 40).sum() / ((reach > 40) & (reach < 80)).sum()
    assert kept_near > 0.97
    assert 0.2 < kept_far < 0.95
    assert distance.min() > MIN_RANGE
    assert distance.max() < 80.5


def test_the_vehicle_hides_the_same_beams_whatever_lies_there() -> None:
    sensor = unit()
    usual = replace(sensor, settings=replace(sensor.settings, blind_shift=0.0))
    whole, part = plane_seen(sensor)[2].points, plane_seen(usual)[2].points
    lost = 1 - len(part) / len(whole)
    assert 0.03 < lost < 0.12

    def ahead(points: np.ndarray) -> np.ndarray:
        near = np.hypot(points[:, 0], points[:, 1]) < 4.45
        return np.abs(np.arctan2(points[near, 1], points[near, 0])) < 0.25

    assert ahead(whole).sum() > 100
    assert ahead(part).sum() == 0


def test_firings_have_the_rhythm_of_the_unit() -> None:
    azimuth = np.degrees(firing_azimuths())
    steps = np.diff(azimuth)
    assert len(azimuth) == AZIMUTH_STEPS
    assert (azimuth[0], azimuth[-1] + steps[0]) == pytest.approx((0.0, 360.0), abs=0.1)
    short = steps < 0.12
    np.testing.assert_allclose(steps[~short], 0.1793, atol=0.001)
    np.testing.assert_allclose(steps[short], 0.0897, atol=0.001)
    assert 1 / short.mean() == pytest.approx(20 / 3, rel=0.02)


def test_motion_of_a_sweep_is_taken_out_of_what_stands_still() -> None:
    before, pose, after = np.eye(4), np.eye(4), np.eye(4)
    before[0, 3], after[0, 3] = -0.5, 0.5  # 1 m a revolution
    angle = 0.01
    before[:2, :2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    after[:2, :2] = before[:2, :2].T
    sweep = Sweep.between(before, pose, after)
    np.testing.assert_allclose(sweep.shift, [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(sweep.turn, [0, 0, 2 * angle], atol=1e-5)
    rng = np.random.default_rng(0)
    world, phase = rng.normal(0, 10, (50, 3)), np.full(50, 0.5)
    seen = (world - after[:3, 3]) @ after[:3, :3]  # as measured half a revolution later
    np.testing.assert_allclose(sweep.moved(seen, phase), world, atol=1e-4)


def test_a_wall_seen_on_the_move_is_straight_only_when_deskewed() -> None:
    wall = surface(block((-80, 4.0, -3), (80, 5.0, 10)), MATERIALS["brick"], 50)
    before, pose, after = np.eye(4), np.eye(4), np.eye(4)
    before[1, 3], after[1, 3] = -0.5, 0.5  # towards the wall
    sweep = Sweep.between(before, pose, after)
    bent = []
    for share in (1.0, 0.0):
        sensor = unit()
        sensor = replace(sensor, settings=replace(sensor.settings, deskew=share))
        firings = sensor.firings(np.random.default_rng(1))
        origins = sweep.to_world(sweep.moved(firings.origins, firings.phase))
        hits = RayCaster(wall).cast(origins, firings.directions)
        scan = sensor.measure(np.random.default_rng(2), firings, hits, sweep)
        bent.append(float(np.abs(scan.points[:, 1] - 4.0).max()))
    assert bent[0] < 0.002
    assert bent[1] > 0.3


def test_scans_lie_on_64_rings(small_set: Path) -> None:
    points = np.fromfile(small_set / "sequences/08/velodyne/000001.bin", np.float32).reshape(-1, 4)
    points = points.astype(float)
    distance = np.linalg.norm(points[:, :3], axis=1)
    assert distance.min() > MIN_RANGE
    assert 60 < distance.max() <= 82.5
    # in the order of the official files: ring after ring from the top, counter-clockwise from ahead
    azimuth = np.degrees(np.arctan2(points[:, 1], points[:, 0])) % 360
    ring = np.concatenate([[0], np.cumsum(np.diff(azimuth) < -180)])
    assert ring[-1] == 63
    assert np.bincount(ring).max() <= AZIMUTH_STEPS
    # seen from its optical centre every ring is a cone
    flat = np.hypot(points[:, 0], points[:, 1])
    elevation = np.degrees(np.arctan2(points[:, 2] - HEIGHTS[ring], flat))
    off = elevation - np.degrees(ELEVATIONS)[ring]
    # ahead, where the sensor has not moved between the firing and the moment of the scan
    ahead = np.abs((azimuth + 180) % 360 - 180) < 8
    for k in range(64):
        mine = off[ahead & (ring == k)]
        if len(mine) > 10:
            assert abs(np.median(mine)) < 0.25  # misalignment of the unit
            assert np.percentile(np.abs(mine - np.median(mine)), 90) < 0.2
    # whole millimetres and hundredths
    np.testing.assert_allclose(points[:, :3] * 1000, np.round(points[:, :3] * 1000), atol=6e-3)
    np.testing.assert_allclose(points[:, 3] * 100, np.round(points[:, 3] * 100), atol=1e-4)
