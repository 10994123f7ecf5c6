"""Fused clouds hold one point a voxel of 2.5 cm, on the surfaces that were seen."""

from __future__ import annotations

import numpy as np
import pytest

from pcnn.simulate.rooms.depth_camera import DepthCamera, measure
from pcnn.simulate.rooms.fusion import BOX_HIGH, BOX_LOW, voxel_means, voxel_samples
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.threedmatch import Drift, drifted, take_fragment
from pcnn.simulate.rooms.walk import look
from tests.simulate.rooms.bare_room import bare_room, wall

CAMERA = DepthCamera(distortion=0.0, lateral_noise=0.0)
MATT = Paint((0.5, 0.5, 0.5), returns=1.0, gloss=1e-6)
ROOM = bare_room(wall(2.0, MATT))
POSES = np.stack([look(np.array([0.0, 0.02 * k, 0.0]), 0.03 * k, 0.0) for k in range(6)])


def voxels(points: np.ndarray) -> np.ndarray:
    return np.floor((points - BOX_LOW) / 0.025).astype(int)


@pytest.fixture(scope="module")
def seen() -> tuple[list[np.ndarray], list[np.ndarray]]:
    images = [measure(np.random.default_rng(k), CAMERA, ROOM, p) for k, p in enumerate(POSES)]
    return images, [np.linalg.inv(POSES[0]) @ pose for pose in POSES]


@pytest.mark.parametrize("fuse", [voxel_means, voxel_samples])
def test_one_point_a_voxel_on_the_wall(fuse, seen) -> None:
    points = fuse(CAMERA, *seen)
    assert len(np.unique(voxels(points), axis=0)) == len(points) > 3000
    assert (points >= BOX_LOW).all()
    assert (points <= BOX_HIGH).all()
    # the wall stands 2 m before the first camera; a quantisation step there is 11 mm
    assert np.abs(np.median(points[:, 2]) - 2.0) < 0.006
    assert np.percentile(np.abs(points[:, 2] - 2.0), 90) < 0.03
    np.testing.assert_array_equal(points, fuse(CAMERA, *seen))


def test_means_are_those_of_all_points_of_a_voxel(seen) -> None:
    rays = CAMERA.rays()
    clouds = []
    for image, pose in zip(*seen, strict=True):
        depth = image.reshape(-1, 1)
        clouds.append(((rays * depth) @ pose[:3, :3].T + pose[:3, 3])[depth[:, 0] > 0])
    every = np.concatenate(clouds)
    points = voxel_means(CAMERA, *seen)
    for point in points[:: len(points) // 7]:
        own = (voxels(every) == voxels(point)).all(1)
        np.testing.assert_allclose(point, every[own].mean(0), atol=1e-9)


def test_stray_points_are_left_out() -> None:
    image = np.zeros((240, 320))
    image[100:140, 100:140] = 2.0
    image[120, 200] = 1.0  # seen once, by one pixel
    points = voxel_samples(CAMERA, [image] * 2, [np.eye(4)] * 2)
    assert len(points) > 50
    np.testing.assert_allclose(points[:, 2], 2.0)


def test_nothing_seen_gives_no_points() -> None:
    assert voxel_samples(CAMERA, [np.zeros((240, 320))], [np.eye(4)]).shape == (0, 3)
    assert voxel_means(CAMERA, [np.zeros((240, 320))], [np.eye(4)]).shape == (0, 3)


def test_drift_starts_at_zero_and_grows() -> None:
    errors = []
    for seed in range(30):
        wrong = drifted(np.random.default_rng(seed), POSES[[0] * 50], Drift(0.001, 0.0005))
        np.testing.assert_array_equal(wrong[0], POSES[0])
        np.testing.assert_allclose(np.linalg.det(wrong[:, :3, :3]), 1.0)
        errors.append(np.linalg.norm(wrong[:, :3, 3] - POSES[0][:3, 3], axis=1))
    growth = np.sqrt((np.square(errors)).mean(0))
    # a random walk: sqrt(3 n) steps of 1 mm
    assert growth[49] == pytest.approx(0.001 * np.sqrt(3 * 49), rel=0.25)
    assert growth[12] == pytest.approx(0.001 * np.sqrt(3 * 12), rel=0.25)


def test_a_fragment_lies_in_the_frame_of_its_first_camera() -> None:
    cloud = take_fragment(np.random.default_rng(0), ROOM, CAMERA, POSES, Drift(0.0, 0.0))
    world = cloud @ POSES[0][:3, :3].T + POSES[0][:3, 3]
    assert abs(np.median(world[:, 0]) - 2.0) < 0.006


@pytest.mark.slow
def test_open3d_finds_the_same_surface(seen) -> None:
    pytest.importorskip("open3d")
    from pcnn.simulate.rooms.fusion import tsdf_points

    points, own = tsdf_points()(CAMERA, *seen), voxel_samples(CAMERA, *seen)
    assert abs(np.median(points[:, 2]) - np.median(own[:, 2])) < 0.01
    # cells of 5 cm that the one cloud fills are filled by the other; ours is thicker by its noise
    filled, ours = ({tuple(c) for c in voxels(cloud) // 2} for cloud in (points, own))
    near = {(x + i, y + j, z + k) for x, y, z in ours
            for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)}  # fmt: skip
    assert len(filled & near) > 0.98 * len(filled)
    assert 0.4 * len(own) < len(points) < 1.1 * len(own)
