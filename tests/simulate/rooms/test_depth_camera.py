"""Depth images of a wall and a box are those that such a camera reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pcnn.simulate.rooms.depth_camera import DepthCamera, draw_camera, measure
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.walk import look
from tests.simulate.rooms.bare_room import bare_room, wall

MATT = Paint((0.5, 0.5, 0.5), returns=1.0, gloss=1e-6)
AHEAD = look(np.zeros(3), 0.0, 0.0)  # along x
EXACT = DepthCamera(disparity_noise=0.0, smooth_noise=0.0, lateral_noise=0.0, distortion=0.0)


def image(distance: float, camera: DepthCamera = EXACT, paint: Paint = MATT) -> np.ndarray:
    return measure(np.random.default_rng(0), camera, bare_room(wall(distance, paint)), AHEAD)


def test_axes_of_the_camera() -> None:
    np.testing.assert_allclose(AHEAD[:3, :3] @ [0, 0, 1], [1, 0, 0], atol=1e-12)  # forward
    np.testing.assert_allclose(AHEAD[:3, :3] @ [1, 0, 0], [0, -1, 0], atol=1e-12)  # right
    np.testing.assert_allclose(AHEAD[:3, :3] @ [0, 1, 0], [0, 0, -1], atol=1e-12)  # down
    turned = look(np.array([1.0, 2.0, 3.0]), 0.7, -0.4, 0.2)
    np.testing.assert_allclose(turned[:3, :3] @ turned[:3, :3].T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turned[:3, :3]) == pytest.approx(1.0)
    # looking down: the forward axis has a negative z
    assert turned[2, 2] == pytest.approx(np.sin(-0.4))
    np.testing.assert_allclose(turned[:3, 3], [1, 2, 3])


def test_depth_is_along_the_axis_and_quantised() -> None:
    depth = image(2.0)
    assert depth.shape == (240, 320)
    # the disparity nearest to 351.3 / 2 = 175.65
    np.testing.assert_allclose(depth[depth > 0], 351.3 / 176, rtol=1e-12)
    assert (depth > 0).mean() > 0.95
    for out_of_range in (0.3, 4.8):
        assert not image(out_of_range).any()


def test_noise_grows_with_the_square_of_the_distance() -> None:
    camera = DepthCamera(distortion=0.0, lateral_noise=0.0)
    images = {z: image(z, camera) for z in (1.0, 2.0, 4.0)}
    spread = {z: depth[depth > 0].std() for z, depth in images.items()}
    assert spread[2.0] / spread[1.0] == pytest.approx(4.0, rel=0.25)
    assert spread[4.0] / spread[2.0] == pytest.approx(4.0, rel=0.25)
    # a third of the step between two disparities and more: 4 mm at 2 m
    assert 0.003 < spread[2.0] < 0.008


def test_glass_and_slanted_gloss_answer_rarely() -> None:
    assert (image(2.0, paint=Paint((0, 0, 0), returns=0.1)) > 0).mean() < 0.25
    room = bare_room(wall(1.0, Paint((0, 0, 0), returns=1.0, gloss=0.7)))
    straight, slanted = (
        (measure(np.random.default_rng(0), EXACT, room, look(np.zeros(3), turn, 0.0)) > 0)[
            :, 150:170
        ]
        for turn in (0.0, 1.15)
    )
    assert straight.mean() > 0.95
    # the square of cos(1.15) / 0.7 is a third
    assert 0.1 < slanted.mean() < 0.5


def test_what_gives_no_answer_stays_the_same_from_frame_to_frame() -> None:
    room = bare_room(wall(2.0, Paint((0, 0, 0), returns=0.5)))
    first, second = (
        measure(np.random.default_rng(seed), EXACT, room, AHEAD) > 0 for seed in (1, 2)
    )
    share = first.mean()
    assert 0.2 < share < 0.8
    assert (first & second).mean() > 1.3 * share**2


def test_the_projector_throws_a_shadow_to_one_side_of_a_box() -> None:
    room = bare_room(((1.0, -0.2, -0.2), (1.1, 0.2, 0.2), MATT), wall(2.0, MATT))
    depth = measure(np.random.default_rng(0), EXACT, room, AHEAD)
    row = depth[120]
    box_columns = np.flatnonzero((row > 0) & (row < 1.5))
    left, right = row[: box_columns[0]], row[box_columns[-1] + 1 :]
    # f b (1 / 1 m - 1 / 2 m) = 262.5 * 0.075 / 2, about ten pixels
    assert 8 <= (left == 0).sum() <= 12
    assert (right == 0).sum() <= 1


def test_equal_streams_give_equal_images_and_units_differ() -> None:
    rng = np.random.default_rng(3)
    first, second = draw_camera(rng), draw_camera(rng)
    assert first != second
    np.testing.assert_array_equal(image(2.0, first), image(2.0, first))
    assert (image(2.0, first) != image(2.0, replace(first, bias=(0.02, 0, 0)))).mean() > 0.5
