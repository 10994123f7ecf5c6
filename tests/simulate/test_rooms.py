"""Rooms of every type are furnished, labelled and closed; cameras and scanners see them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pcnn.datasets.s3dis.classes import ROOM_TYPES
from pcnn.simulate.mesh import join, surface
from pcnn.simulate.rooms.depth_camera import BOX_HIGH, BOX_LOW, DepthCamera, fuse, measure
from pcnn.simulate.rooms.furnish import build_room
from pcnn.simulate.rooms.paint import Paint, Palette, colours
from pcnn.simulate.rooms.room import Room, draw_settings
from pcnn.simulate.rooms.scanner import brightness, scan_room
from pcnn.simulate.rooms.site import LABELS
from pcnn.simulate.rooms.threedmatch import drifted, take_fragment
from pcnn.simulate.rooms.walk import Motion, look, walk_through
from pcnn.simulate.shapes import block
from pcnn.simulate.simulator import draw

MATT = Paint((0.5, 0.5, 0.5), returns=1.0, gloss=1e-6)
AHEAD = look(np.zeros(3), 0.0, 0.0)  # along x
EXACT = DepthCamera(*[0.0] * 5, loss=1.0)  # no noise, no error of calibration
NOISY = replace(EXACT, disparity_noise=0.17, smooth_noise=0.25)
STILL = replace(Motion(**draw(np.random.default_rng(0), Motion)), drift_shift=0.0, drift_turn=0.0)
POSES = np.stack([look(np.array([0.0, 0.02 * k, 0.0]), 0.03 * k, 0.0) for k in range(6)])


@cache
def room(room_type: str, seed: int, split: str) -> Room:
    return build_room(np.random.default_rng(seed), room_type, split)


def bare_room(*boxes: tuple) -> Room:
    """A room of nothing but boxes (low corner, high corner, paint) and a lamp."""
    parts = [surface(block(low, high), number, 2) for number, (low, high, _) in enumerate(boxes)]
    settings = draw_settings(np.random.default_rng(0), "office", "train")
    return Room.of(settings, join(parts), [box[2] for box in boxes], np.array([[0.0, 0.0, 2.0]]))


def wall(distance: float, paint: Paint = MATT) -> tuple:
    """A wall across the x axis."""
    return (distance, -9.0, -9.0), (distance + 0.1, 9.0, 9.0), paint


def image(distance: float, camera: DepthCamera = EXACT, paint: Paint = MATT) -> np.ndarray:
    return measure(np.random.default_rng(0), camera, bare_room(wall(distance, paint)), AHEAD)


@pytest.mark.parametrize("room_type", ROOM_TYPES)
def test_every_type_is_furnished_inside_its_walls(room_type: str) -> None:
    for built in (room(room_type, 0, "train"), room(room_type, 1, "val")):
        labels, s = built.mesh.labels, built.settings
        assert {LABELS[name] for name in ("ceiling", "floor", "wall", "clutter")} <= set(labels)
        # one object is of one class
        pairs = np.unique(np.stack([built.mesh.instances, labels]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1] > 10
        assert built.mesh.materials.max() < len(built.paints) <= 256
        furniture = np.isin(labels, [LABELS["table"], LABELS["chair"], LABELS["sofa"]])
        corners = built.mesh.triangles[furniture].reshape(-1, 3)
        assert (corners >= (-0.15, -0.15, -0.01)).all()
        assert (corners <= np.add((s.width, s.depth, s.height), 0.15)).all()
        # from its middle, every ray but those through windows and doors meets something
        rays = np.random.default_rng(0).normal(size=(500, 3))
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        distance, _ = built.caster.first_faces(
            np.array([s.width / 2, s.depth / 2, s.height * 0.55]), rays
        )
        assert np.isfinite(distance).mean() > 0.97


def test_all_classes_are_scanned() -> None:
    """Shares of points, with wide bounds about those of S3DIS."""
    held = np.zeros(len(LABELS))
    for room_type in ROOM_TYPES:
        for kind in ((0, "train"), (1, "val")):
            built = room(room_type, *kind)
            cloud = scan_room(np.random.default_rng(0), built, 0.1)
            held += np.bincount(cloud.labels, minlength=len(held)) / len(cloud.labels)
    share = dict(zip(LABELS, held / held.sum(), strict=True))
    assert min(share.values()) > 0.001
    for name, low, high in (
        *(("wall", 0.2, 0.5), ("floor", 0.1, 0.3), ("ceiling", 0.1, 0.3)),
        *(("clutter", 0.03, 0.2), ("door", 0.01, 0.1), ("chair", 0.005, 0.1)),
        *(("table", 0.005, 0.1), ("bookcase", 0.005, 0.1)),
    ):
        assert low < share[name] < high, name


def test_a_palette_is_bounded_and_patterns_stay_near_the_paint() -> None:
    palette = Palette(np.random.default_rng(0))
    numbers = [palette.draw("coloured") for _ in range(100)]
    assert len(palette.paints) == len(set(numbers)) < 30
    points = np.random.default_rng(0).uniform(0, 3, (4000, 3))
    textures = ["plain", "tiles"]
    paints = [Paint((0.5, 0.4, 0.3), texture, 0.1, 0.3) for texture in textures]
    for number in range(len(paints)):
        rgb = colours(paints, np.full(len(points), number, np.uint8), points)
        np.testing.assert_allclose(rgb.mean(0), (0.5, 0.4, 0.3), atol=0.02)
        assert 0.001 < rgb[:, 0].std() < 0.08


def test_a_camera_is_carried_smoothly_through_free_space() -> None:
    built, rng = room("lounge", 1, "train"), np.random.default_rng(2)
    poses = walk_through(rng, built, Motion(**draw(rng, Motion)), 300)
    turns = poses[:, :3, :3]
    np.testing.assert_allclose(
        turns @ turns.transpose(0, 2, 1), np.tile(np.eye(3), (300, 1, 1)), atol=1e-9
    )
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert 0 < steps.max() < 0.05
    cosine = (np.einsum("nij,nij->n", turns[1:], turns[:-1]) - 1) / 2
    assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).max() < 6
    assert built.clearance(poses[::10, :3, 3]).min() > 0.15
    assert 0.5 < poses[:, 2, 3].min() <= poses[:, 2, 3].max() < 2.2


def test_depth_is_along_the_axis_and_quantised() -> None:
    depth = image(2.0)
    # the disparity nearest to 351.3 / 2 = 175.65
    np.testing.assert_allclose(depth[depth > 0], 351.3 / 176, rtol=1e-12)
    assert (depth > 0).mean() > 0.95
    for out_of_range in (0.3, 4.8):
        assert not image(out_of_range).any()
    images = (image(z, NOISY) for z in (1.0, 2.0, 4.0))
    near, middle, far = (depth[depth > 0].std() for depth in images)
    # noise grows with the square of the distance
    assert middle / near == pytest.approx(4.0, rel=0.25)
    assert far / middle == pytest.approx(4.0, rel=0.25)


def test_glass_answers_rarely_from_the_same_places_and_boxes_throw_shadows() -> None:
    assert (image(2.0, paint=Paint((0, 0, 0), returns=0.1)) > 0).mean() < 0.25
    half = bare_room(wall(2.0, Paint((0, 0, 0), returns=0.5)))
    first, second = (measure(np.random.default_rng(k), EXACT, half, AHEAD) > 0 for k in (1, 2))
    assert (first & second).mean() > 1.3 * first.mean() ** 2
    room = bare_room(((1.0, -0.2, -0.2), (1.1, 0.2, 0.2), MATT), wall(2.0))
    row = measure(np.random.default_rng(0), EXACT, room, AHEAD)[120]
    box = np.flatnonzero((row > 0) & (row < 1.5))
    # f b (1 / 1 m - 1 / 2 m) = 262.5 * 0.075 / 2, about ten pixels, on one side
    assert 8 <= (row[: box[0]] == 0).sum() <= 12
    assert (row[box[-1] + 1 :] == 0).sum() <= 1


def test_a_fragment_has_one_point_a_voxel_on_what_was_seen() -> None:
    wall_ahead = bare_room(wall(2.0))
    points = take_fragment(np.random.default_rng(0), wall_ahead, NOISY, POSES, STILL)
    cells = np.floor((points - BOX_LOW) / 0.025)
    assert len(np.unique(cells, axis=0)) == len(points) > 3000
    assert ((points >= BOX_LOW) & (points <= BOX_HIGH)).all()
    # the wall stands 2 m before the first camera; a quantisation step there is 11 mm
    assert np.abs(np.median(points[:, 2]) - 2.0) < 0.006
    assert np.percentile(np.abs(points[:, 2] - 2.0), 90) < 0.03
    stray = np.zeros((240, 320))
    stray[100:140, 100:140] = 2.0
    stray[120, 200] = 1.0  # seen once, by one pixel
    np.testing.assert_allclose(fuse(EXACT, [stray] * 2, [np.eye(4)] * 2)[:, 2], 2.0)
    assert fuse(EXACT, [0 * stray], [np.eye(4)]).shape == (0, 3)


def test_drift_grows_like_a_random_walk() -> None:
    errors = []
    for seed in range(30):
        drift = replace(STILL, drift_shift=0.001, drift_turn=0.0005)
        wrong = drifted(np.random.default_rng(seed), POSES[[0] * 50], drift)
        np.testing.assert_allclose(np.linalg.det(wrong[:, :3, :3]), 1.0)
        errors.append(np.linalg.norm(wrong[:, :3, 3] - POSES[0][:3, 3], axis=1))
    growth = np.sqrt(np.square(errors).mean(0))
    assert growth[0] == 0
    for frames in (12, 49):  # sqrt(3 n) steps of 1 mm
        assert growth[frames] == pytest.approx(0.001 * np.sqrt(3 * frames), rel=0.25)


def test_light_falls_by_lamberts_law() -> None:
    x, y = np.meshgrid(np.linspace(-3, 3, 41), np.linspace(-3, 3, 41))
    points = np.stack([x, y, np.zeros_like(x)], -1).reshape(-1, 3)
    up = np.tile([0.0, 0.0, 1.0], (len(points), 1))
    # the only lamp hangs 2 m above the origin
    square = (points**2).sum(1) + 4.0
    share = 2.0 / np.sqrt(square) / (1.0 + square)
    expected = 0.35 + 0.65 * np.minimum(share / share.mean(), 2.0)
    np.testing.assert_allclose(brightness(bare_room(wall(2.0)), points, up), expected)
