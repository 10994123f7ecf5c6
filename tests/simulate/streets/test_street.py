"""The streets hold what they should, where it should be."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import cKDTree

from pcnn.simulate.raycast import RayCaster
from pcnn.simulate.streets.ground import Ground, Relief
from pcnn.simulate.streets.layout import Zone
from pcnn.simulate.streets.raw_ids import MOVING
from pcnn.simulate.streets.settings import BLOCK_LENGTH
from pcnn.simulate.streets.street import Street, View
from pcnn.simulate.streets.traffic import Arrival, Passing

# the training class of every raw id, written down independently of the package
CLASSES = {
    "car": (10, 252), "bicycle": (11,), "motorcycle": (15,), "truck": (18, 258),
    "other-vehicle": (13, 20, 257, 259), "person": (30, 254), "bicyclist": (31, 253),
    "motorcyclist": (32, 255), "road": (40, 60), "parking": (44,), "sidewalk": (48,),
    "other-ground": (49,), "building": (50,), "fence": (51,), "vegetation": (70,), "trunk": (71,),
    "terrain": (72,), "pole": (80,), "traffic-sign": (81,),
}  # fmt: skip
GROUND = (40, 44, 48, 49, 60, 72)


def test_validation_streets_hold_every_class_within_25_m(street: Street) -> None:
    seen = dict.fromkeys(CLASSES, 0)
    for group in ([0, 45], [75, 105], [150, 195]):
        view = View(street, group)
        for frame in group:
            scan = view.scan(frame)
            near = np.hypot(scan.points[:, 0], scan.points[:, 1]) < 25
            raw = scan.labels[near] & 0xFFFF
            for name, ids in CLASSES.items():
                seen[name] += int(np.isin(raw, ids).sum())
    assert {name for name, points in seen.items() if points < 50} == set(), seen


def test_static_points_of_two_scans_agree_under_the_poses(small_set: Path) -> None:
    folder = small_set / "sequences" / "08"
    lines = dict(line.split(":") for line in (folder / "calib.txt").read_text().splitlines())

    def rigid(values: np.ndarray) -> np.ndarray:
        return np.vstack([np.reshape(values, (3, 4)), [0, 0, 0, 1]])

    to_camera = rigid(np.array(lines["Tr"].split(), float))
    poses = [rigid(p) for p in np.loadtxt(folder / "poses.txt")]
    clouds = []
    for index in (0, 1):
        points = np.fromfile(folder / f"velodyne/{index:06d}.bin", np.float32).reshape(-1, 4)[:, :3]
        raw = np.fromfile(folder / f"labels/{index:06d}.label", np.uint32) & 0xFFFF
        solid = (raw < 250) & (raw != 70) & (np.linalg.norm(points, axis=1) < 20)
        clouds.append(points[solid].astype(float))
    moved = np.linalg.inv(to_camera) @ np.linalg.inv(poses[0]) @ poses[1] @ to_camera
    drive = np.linalg.norm(moved[:3, 3])
    assert 5 < drive < 12  # one second
    assert moved[0, 3] > 0.97 * drive  # forward
    tree = cKDTree(clouds[0])
    upright = clouds[1][:, 2] > -1.2  # ground alone would fit at any shift

    def gap(transform: np.ndarray) -> float:
        there = clouds[1][upright] @ transform[:3, :3].T + transform[:3, 3]
        return float(np.median(tree.query(there)[0]))

    assert gap(moved) < 0.2
    assert gap(np.eye(4)) > 2 * gap(moved)
    assert gap(np.linalg.inv(moved)) > 2 * gap(moved)
    # nothing near the pose fits better
    for axis in range(3):
        for shift in (-0.3, 0.3):
            off = moved.copy()
            off[axis, 3] += shift
            assert gap(off) > 1.1 * gap(moved)


def test_the_ground_has_no_holes(street: Street) -> None:
    low, high = 0 * BLOCK_LENGTH, 2 * BLOCK_LENGTH
    mesh = street.standing(low, high)
    ground = RayCaster(mesh.chosen(np.isin(mesh.labels, GROUND)))
    s, d = np.meshgrid(np.linspace(low + 0.5, high - 0.5, 60), np.linspace(-30, 30, 61))
    flat = np.stack([s, d, np.zeros(s.shape)], -1).reshape(-1, 3)
    there = street.road.bend(flat)
    # from 300 m above one point rays reach all over the two blocks at 70 degrees and more
    eye = street.road.bend(np.array([(low + high) / 2, 0.0, 300.0]))
    rays = there - eye
    length = np.linalg.norm(rays, axis=1)
    hits = ground.cast(eye, rays / length[:, None])
    assert np.isfinite(hits.distance).all()
    assert np.abs(hits.distance - length).max() < 1.5


def test_nothing_stands_in_the_lane_of_the_sensor(street: Street) -> None:
    settings = street.settings
    for index in range(3):
        mesh = street.block(index).standing
        corners = mesh.triangles[~np.isin(mesh.labels, GROUND)].reshape(-1, 3)
        middle = np.abs(corners[:, 1] + settings.lane) < 0.9
        # twigs may hang over the road higher up
        low = (corners[:, 2] > 0.02) & (corners[:, 2] < 2.0)
        inside = (corners[:, 0] > index * BLOCK_LENGTH) & (
            corners[:, 0] < (index + 1) * BLOCK_LENGTH
        )
        assert not (middle & low & inside).any()


def test_vehicles_of_a_lane_never_run_into_each_other(street: Street) -> None:
    oncoming = [
        mover
        for index in range(-2, 6)
        for mover in street.block(index).movers
        if isinstance(mover, Passing) and mover.d == street.settings.lane
    ]
    assert len(oncoming) > 4
    for when in (0.0, 5.0, 12.0):
        spans = []
        for mover in oncoming:
            place = mover.place(when, street.drive.meeting_time(mover.s))
            x = mover.mesh.moved(*place).triangles[..., 0]
            spans.append((x.min(), x.max()))
        spans.sort()
        assert all(a[1] < b[0] for a, b in pairwise(spans))


def test_moving_things_move_and_say_so(street: Street) -> None:
    first, later = street.moving(2.0), street.moving(2.5)
    assert set(np.unique(first.labels)) <= {int(raw) for raw in MOVING.values()}
    places = [
        {i: m.triangles[m.instances == i].mean((0, 1)) for i in np.unique(m.instances)}
        for m in (first, later)
    ]
    common = set(places[0]) & set(places[1])
    assert len(common) > 10
    speed = {i: np.linalg.norm(places[1][i] - places[0][i]) / 0.5 for i in common}
    # who has arrived at the end of a side street waits there
    arrived = {
        int(mover.mesh.instances[0])
        for index in range(-3, 5)
        for mover in street.block(index).movers
        if isinstance(mover, Arrival) and street.drive.meeting_time(mover.s) < 2.5
    }
    assert all(0.5 < v < 15 for i, v in speed.items() if i not in arrived)
    assert all(v < 10 for i, v in speed.items() if i in arrived)


def test_a_drive_longer_than_the_ids_reach_is_refused(street: Street) -> None:
    with pytest.raises(ValueError, match="instance ids"):
        View(street, [30_000]).scan(30_000)


def test_districts_differ_in_what_may_change_along_a_street() -> None:
    street = Street(seed=5, sequence=0, split="train")
    districts = street.districts(0.0, 1000.0)
    assert len(districts) >= 4
    assert len({d.park_share for d in districts.values()}) == len(districts)
    assert {d.road_half_width for d in districts.values()} == {street.settings.road_half_width}


def test_side_streets_lead_away_from_the_street_as_ground_and_road() -> None:
    arms = 0
    for sequence in range(2):
        street = Street(seed=0, sequence=sequence, split="train")
        for index in range(6):
            block = street.block(index).plan
            if block.crossing is None:
                continue
            for side in block.sides:
                far = np.array([side.sign * (side.edge + 30.0)])
                ground = Ground(block, Relief(np.zeros((1, 4)), (0.0, 0.0)), 0.1)
                kind = ground.zone(np.array([block.crossing.s]), far)[0]
                assert (kind == Zone.ROAD) == block.crossing.has_arm(side)
                arms += int(block.crossing.has_arm(side))
    assert arms > 2


def test_the_land_slopes_beyond_the_sidewalks() -> None:
    sides = Street(seed=0, sequence=0, split="train").block(0).plan.sides
    relief = Relief(np.zeros((1, 4)), (0.1, -0.05))
    near, far = sides[0].edge, sides[0].edge + 30.0
    up = relief.bank(np.array([0.0, near, far]), sides)
    np.testing.assert_allclose(up[:2], 0.0, atol=1e-9)
    assert 2.0 < up[2] < 3.0
    assert -1.5 < relief.bank(np.array([-sides[1].edge - 30.0]), sides)[0] < -1.0


def test_a_sector_holds_whatever_moves_in_it(street: Street) -> None:
    time, sectors = 3.0, 12
    whole = street.moving(time)
    pose = street.drive.pose(time)
    x, y = ((whole.triangles.mean(1) - pose[:3, 3]) @ pose[:3, :3])[:, :2].T
    azimuth, near = np.arctan2(y, x), np.hypot(x, y) < 80
    for number in range(sectors):
        middle = 2 * np.pi * ((number + 0.5) / sectors - 0.5)
        part = street.moving(time, (middle, np.pi / sectors))
        inside = near & (np.abs(azimuth - middle) < np.pi / sectors)
        assert set(whole.instances[inside]) <= set(part.instances)
        assert len(part) < len(whole)


def test_any_sensor_has_its_beams_and_height_on_the_same_street() -> None:
    usual, other = Street(5, 0, "train"), Street(5, 0, "train", sensors="any")
    beams = {len(Street(5, number, "train", sensors="any").lidar.elevations) for number in range(9)}
    assert beams <= {16, 32, 64, 128}
    assert len(beams) > 1
    assert usual.settings == other.settings
    assert 0.5 <= other.sensor_settings.height <= 2.8
    scan = View(other, [0]).scan(0)
    below = np.abs(scan.points[:, :2]).max(1) < 6.0
    ground = np.quantile(scan.points[below, 2], 0.05)
    assert abs(ground + other.sensor_settings.height) < 0.3
    flat = np.hypot(scan.points[:, 0], scan.points[:, 1])
    elevation = np.degrees(np.arctan2(scan.points[:, 2], flat))
    lit = np.histogram(elevation, 4 * len(other.lidar.elevations))[0] > 0
    assert int((lit[1:] & ~lit[:-1]).sum()) <= len(other.lidar.elevations)
