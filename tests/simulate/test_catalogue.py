"""Objects of a catalogue: drawn values, shapes and their changes, and all objects of both rooms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.simulate.catalogue import Catalogue, Thing
from pcnn.simulate.rooms.paint import Palette
from pcnn.simulate.rooms.site import OBJECTS as ROOM_OBJECTS
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.site import OBJECTS as STREET_OBJECTS

TEXT = """
step: {class: stone, parts: {grey: [{block: [[0, 0, 0], [width, 1, 1]]}]}}
stairs:
  class: wood
  draw: {steps: whole 2 .. 4, width: 1 .. 3, lamp: 50 %, paint: grey 25 % | red}
  top: steps
  scale: 2
  use: {step: [{}, {width: 2 * width}]}
  parts:
    paint:
    - {box: [[0, 0, z], [1, 1, 0.5]], for: {z: "line(0, steps - 1, steps)"}, mirror: x,
       move: [5, 0, 0]}
    - {tube: [[0, 0, 0], [0, 0, 1], 0.1], if: lamp, class: stone}
    - {box: [[1, 0, 0], [0.2, 0.2, 0.2]], turn: [z, pi / 2, [0, 0, 0]]}
either: {one_of: {step: 3, stairs: 1}}
"""
PAINTS = {"grey": 0, "red": 1}


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "objects.yaml").write_text(TEXT)
    return Catalogue(tmp_path / "objects.yaml", {"stone": 5, "wood": 6})


def many(catalogue: Catalogue, name: str, count: int = 200, **given: float) -> list[Thing]:
    rng = np.random.default_rng(0)
    return [catalogue.make(rng, PAINTS.get, name, **given) for _ in range(count)]


def test_values_are_drawn_in_their_ranges(catalogue: Catalogue) -> None:
    things = many(catalogue, "stairs")
    assert {thing.top for thing in things} == {2, 3, 4}
    widths = [thing.mesh.triangles[:24, :, 0].max() / 4 for thing in things]
    assert 1 < min(widths) < 1.2 < 2.8 < max(widths) < 3
    assert np.mean([0 in thing.mesh.materials[24:] for thing in things]) == pytest.approx(
        0.25, abs=0.1
    )
    assert np.mean([5 in thing.mesh.labels for thing in things]) == pytest.approx(0.5, abs=0.1)
    stones = [thing.top is None for thing in many(catalogue, "either", width=1.0)]
    assert np.mean(stones) == pytest.approx(0.75, abs=0.1)
    (given,) = many(catalogue, "stairs", 1, steps=3, width=1.5, lamp=0)
    assert (given.top, given.mesh.triangles[:24, :, 0].max()) == (3, 6.0)


def test_shapes_are_repeated_mirrored_turned_and_moved(catalogue: Catalogue) -> None:
    (stairs,) = many(catalogue, "stairs", 1, steps=3, width=1.0, lamp=0)
    mesh = stairs.mesh
    assert len(mesh) == 12 * (2 + 2 * 3 + 1)
    # used objects take the label of their user, and come first
    assert set(mesh.labels.tolist()) == {6}
    boxes = mesh.triangles[24:].reshape(-1, 36, 3) / 2
    np.testing.assert_allclose(boxes[:, :, 2].max(1), [0.25, 1.25, 2.25] * 2 + [0.1])
    np.testing.assert_allclose(boxes[:6].mean((0, 1)), [5, 0, 1], atol=1e-9)
    np.testing.assert_allclose(boxes[6].mean(0), [0, 1, 0], atol=1e-9)
    assert stairs.width == 2 * 2 * 5.5


def test_every_object_of_streets_and_rooms_can_be_made() -> None:
    given: dict[str, dict[str, float]] = {
        "board": {"w": 1, "h": 1}, "window": {"w": 1, "low": 0.8, "high": 2},
        "door": {"w": 0.9, "h": 2, "open": 0.7}, "house": {"w": 7, "d": 6, "h": 6},
        **{one: {"length": 4} for one in ("fence", "hedge", "pickets", "wire", "boards", "wall")},
    }  # fmt: skip
    # objects that only others use, with values of theirs
    parts = {"chair_frame", "four_legged", "chest", "books", "reveal", "car_body", "figure",
             "rider", "posts"}  # fmt: skip
    rng = np.random.default_rng(0)
    palette = Palette(rng)
    things = []
    for _ in range(3):
        for catalogue, paints in ((ROOM_OBJECTS, palette.find), (STREET_OBJECTS, MATERIALS.get)):
            for name in catalogue.entries.keys() - parts:
                things.append(catalogue.make(rng, paints, name, **given.get(name, {})))
    for thing in things:
        assert len(thing.mesh) > 10
        assert np.isfinite(thing.mesh.triangles).all()
        assert 0 < thing.height < 15
        assert 0 < min(thing.width, thing.depth) < 12
        assert thing.top is None or abs(thing.top - thing.height) < 1.3
