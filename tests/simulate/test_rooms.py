"""Rooms of every type are furnished, labelled and closed; cameras and scanners see them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pcnn.simulate.mesh import join, surface
from pcnn.simulate.rooms.depth_camera import BOX_HIGH, BOX_LOW, DepthCamera, fuse
from pcnn.simulate.rooms.furnish import build_room
from pcnn.simulate.rooms.paint import Paint
from pcnn.simulate.rooms.room import TYPES, Room, draw_settings
from pcnn.simulate.rooms.site import LABELS
from pcnn.simulate.rooms.threedmatch import take_fragment
from pcnn.simulate.rooms.walk import Motion, look
from pcnn.simulate.shapes import block
from pcnn.simulate.simulator import draw

MATT = Paint((0.5, 0.5, 0.5), returns=1.0, gloss=1e-6)
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


@pytest.mark.parametrize("room_type", TYPES)
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
