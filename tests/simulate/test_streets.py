"""Streets hold what they should, where it should be, and the sensor measures as its unit does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from pcnn.simulate.mesh import RayCaster
from pcnn.simulate.streets.settings import BLOCK_LENGTH
from pcnn.simulate.streets.street import Street, View

# the raw ids of every training class, written down independently of the package
CLASSES = (
    (10, 252), (11,), (15,), (18, 258), (13, 20, 257, 259), (30, 254), (31, 253), (32, 255),
    (40, 60), (44,), (48,), (49,), (50,), (51,), (70,), (71,), (72,), (80,), (81,),
)  # fmt: skip
GROUND = (40, 44, 48, 49, 60, 72)
#: Quantiles of 110 real scans of eleven sequences, and how far ours may lie from them.
REAL = {
    "range": ([5.006, 6.295, 10.195, 18.156, 30.719], 3.0),
    "height": ([-1.960, -1.773, -1.595, -0.824, 0.156], 0.15),
    "remission": ([0.07, 0.21, 0.30, 0.36, 0.43], 0.06),
}
#: Shares of points by raw ids, with wide bounds about those of the real set.
SHARES = (
    ((40, 60), 0.18, 0.4), ((48,), 0.06, 0.2), ((50,), 0.08, 0.25), ((70,), 0.08, 0.35),
    ((72,), 0.05, 0.25), ((10, 252), 0.02, 0.12), ((51,), 0.005, 0.1), ((71, 80, 81), 0.01, 0.07),
)  # fmt: skip


def test_validation_streets_hold_every_class_within_25_m(street: Street) -> None:
    seen = np.zeros(len(CLASSES))
    for group in ([0, 45], [75, 105], [150, 195]):
        view = View(street, group)
        for frame in group:
            scan = view.scan(frame)
            near = np.hypot(scan.points[:, 0], scan.points[:, 1]) < 25
            seen += [np.isin(scan.labels[near] & 0xFFFF, ids).sum() for ids in CLASSES]
    assert (seen >= 50).all()


def test_scans_are_distributed_as_real_ones() -> None:
    views = [View(Street(seed=0, sequence=number, split="train"), [0]) for number in (0, 2, 4, 6)]
    scans = [view.scan(0) for view in views]
    points = np.concatenate([scan.points for scan in scans]).astype(float)
    labels = np.concatenate([scan.labels for scan in scans])
    for ids, least, most in SHARES:
        assert least < np.isin(labels, ids).mean() < most, ids
    found = {
        "range": np.linalg.norm(points[:, :3], axis=1),
        "height": points[:, 2],
        "remission": points[:, 3],
    }
    for name, (quantiles, allowed) in REAL.items():
        own = np.quantile(found[name], (0.1, 0.25, 0.5, 0.75, 0.9))
        np.testing.assert_allclose(own, quantiles, rtol=0, atol=allowed, err_msg=name)
    assert 110_000 < len(points) / len(scans) < 130_000


def test_static_points_of_two_scans_agree_under_the_poses(streets: Path) -> None:
    folder = streets / "sequences" / "08"
    lines = dict(line.split(":") for line in (folder / "calib.txt").read_text().splitlines())
    to_camera, *poses = (
        np.vstack([np.reshape(values, (3, 4)), [0, 0, 0, 1]])
        for values in (np.array(lines["Tr"].split(), float), *np.loadtxt(folder / "poses.txt"))
    )
    clouds = []
    for index in (0, 1):
        points = np.fromfile(folder / f"velodyne/{index:06d}.bin", np.float32).reshape(-1, 4)[:, :3]
        raw = np.fromfile(folder / f"labels/{index:06d}.label", np.uint32) & 0xFFFF
        solid = (raw < 250) & (raw != 70) & (np.linalg.norm(points, axis=1) < 20)
        clouds.append(points[solid].astype(float))
    moved = np.linalg.inv(to_camera) @ np.linalg.inv(poses[0]) @ poses[1] @ to_camera
    assert 5 < moved[0, 3] < 12  # forward, in one second
    tree, upright = cKDTree(clouds[0]), clouds[1][clouds[1][:, 2] > -1.2]

    def gap(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> float:
        there = upright @ moved[:3, :3].T + moved[:3, 3] + (x, y, z)
        return float(np.median(tree.query(there)[0]))

    assert gap() < 0.2
    for shift in (-0.3, 0.3):  # nothing near the pose fits better
        assert min(gap(x=shift), gap(y=shift), gap(z=shift)) > 1.1 * gap()


def test_the_ground_has_no_holes_and_the_lane_is_free(street: Street) -> None:
    high = 2 * BLOCK_LENGTH
    mesh = street.standing(0.0, high)
    ground = RayCaster(mesh.chosen(np.isin(mesh.labels, GROUND)))
    s, d = np.meshgrid(np.linspace(0.5, high - 0.5, 60), np.linspace(-30, 30, 61))
    there = street.road.bend(np.stack([s, d, np.zeros(s.shape)], -1).reshape(-1, 3))
    # from 300 m above one point rays reach all over the two blocks at 70 degrees and more
    eye = street.road.bend(np.array([high / 2, 0.0, 300.0]))
    length = np.linalg.norm(there - eye, axis=1)
    hits = ground.cast(eye, (there - eye) / length[:, None])
    assert np.abs(hits.distance - length).max() < 1.5
    for index in range(3):
        mesh = street.block(index)[0]
        corners = mesh.triangles[~np.isin(mesh.labels, GROUND)].reshape(-1, 3)
        in_lane = np.abs(corners[:, 1] + street.settings.lane) < 0.9
        low = (corners[:, 2] > 0.02) & (corners[:, 2] < 2.0)  # twigs may hang over it higher up
        inside = np.abs(corners[:, 0] / BLOCK_LENGTH - index - 0.5) < 0.5
        assert not (in_lane & low & inside).any()
