"""Rooms of every type are furnished, labelled, closed and equal by seed."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from pcnn.datasets.s3dis.classes import ROOM_TYPES
from pcnn.simulate.rooms.paint import Paint, Palette, colours
from pcnn.simulate.rooms.room import Room, build_room
from pcnn.simulate.rooms.site import LABELS
from pcnn.simulate.rooms.walk import draw_motion, walk_through

KINDS = ((0, "train"), (1, "val"))  # seeds and splits


@cache
def room(room_type: str, seed: int = 0, split: str = "train") -> Room:
    return build_room(np.random.default_rng(seed), room_type, split, lived_in=split == "val")


@pytest.mark.parametrize("room_type", [*ROOM_TYPES, "guestRoom"])
def test_every_type_is_furnished_inside_its_walls(room_type: str) -> None:
    for seed, split in KINDS:
        built = room(room_type, seed, split)
        labels = built.mesh.labels
        assert {LABELS[name] for name in ("ceiling", "floor", "wall", "clutter")} <= set(labels)
        assert labels.max() <= 12
        # one object is of one class
        pairs = np.unique(np.stack([built.mesh.instances, labels]), axis=1)
        assert len(np.unique(pairs[0])) == pairs.shape[1] > 10
        assert built.mesh.materials.max() < len(built.paints) <= 256
        s = built.settings
        corners = built.mesh.triangles.reshape(-1, 3)
        inside = np.isin(labels.repeat(3), [LABELS["table"], LABELS["chair"], LABELS["sofa"]])
        low, high = np.array([-0.15, -0.15, -0.01]), np.array([s.width, s.depth, s.height]) + 0.15
        assert (corners[inside] >= low).all()
        assert (corners[inside] <= high).all()
        # from its middle, every ray but those through windows and doors meets something
        rng = np.random.default_rng(0)
        rays = rng.normal(size=(500, 3))
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        middle = np.array([s.width / 2, s.depth / 2, s.height * 0.55])
        distance, _ = built.caster.first_faces(middle, rays)
        assert np.isfinite(distance).mean() > 0.97


def test_all_classes_occur() -> None:
    built = [room(room_type, *kind) for room_type in ROOM_TYPES for kind in KINDS]
    assert set(np.concatenate([one.mesh.labels for one in built])) == set(range(13))


def test_rooms_that_are_lived_in_hold_more_clutter() -> None:
    def things(built: Room) -> int:
        return len(np.unique(built.mesh.instances[built.mesh.labels == LABELS["clutter"]]))

    more = 0
    for seed in range(6):
        plain, used = (
            build_room(np.random.default_rng(seed), "conferenceRoom", "train", lived_in)
            for lived_in in (False, True)
        )
        more += things(used) - things(plain)
    assert more > 30


def test_what_is_unknown_is_named() -> None:
    with pytest.raises(ValueError, match="room type 'cellar' is unknown"):
        room("cellar")
    with pytest.raises(ValueError, match="split 'holdout' is unknown"):
        room("office", split="holdout")


def test_a_palette_is_bounded() -> None:
    palette = Palette(np.random.default_rng(0))
    numbers = [palette.draw("coloured") for _ in range(100)]
    assert len(palette.paints) == len(set(numbers)) < 30
    for k in range(256 - len(palette.paints)):
        palette.add(Paint((k / 256, 0.0, 0.0)))
    with pytest.raises(ValueError, match="at most 256"):
        palette.add(Paint((0.0, 1.0, 0.0)))


def test_patterns_stay_near_the_paint() -> None:
    points = np.random.default_rng(0).uniform(0, 3, (4000, 3))
    textures = ["plain", "grain", "tiles", "carpet", "bricks", "stripes", "marbled"]
    paints = [Paint((0.5, 0.4, 0.3), texture, 0.1, 0.3) for texture in textures]
    for number in range(len(paints)):
        rgb = colours(paints, np.full(len(points), number, np.uint8), points)
        np.testing.assert_allclose(rgb.mean(0), paints[number].colour, atol=0.02)
        assert 0.001 < rgb[:, 0].std() < 0.08


def test_a_camera_is_carried_smoothly_through_free_space() -> None:
    built = room("lounge", 1)
    rng = np.random.default_rng(2)
    motion = draw_motion(rng)
    poses = walk_through(rng, built, motion, 300)
    assert poses.shape == (300, 4, 4)
    eye = np.broadcast_to(np.eye(3), (300, 3, 3))
    turns = poses[:, :3, :3]
    np.testing.assert_allclose(turns @ turns.transpose(0, 2, 1), eye, atol=1e-9)
    steps = np.linalg.norm(np.diff(poses[:, :3, 3], axis=0), axis=1)
    assert 0 < steps.max() < 0.05
    cosine = (np.einsum("nij,nij->n", turns[1:], turns[:-1]) - 1) / 2
    assert np.degrees(np.arccos(np.clip(cosine, -1, 1))).max() < 6
    assert built.clearance(poses[::10, :3, 3]).min() > 0.15
    height = poses[:, 2, 3]
    assert 0.5 < height.min() <= height.max() < 2.2
