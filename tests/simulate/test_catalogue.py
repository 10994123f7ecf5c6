"""Objects of a catalogue: drawn values, shapes and their changes, and all objects of both rooms."""

from __future__ import annotations

import numpy as np

from pcnn.simulate.rooms.paint import Palette
from pcnn.simulate.rooms.site import OBJECTS as ROOM_OBJECTS
from pcnn.simulate.streets.materials import MATERIALS
from pcnn.simulate.streets.site import OBJECTS as STREET_OBJECTS


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
