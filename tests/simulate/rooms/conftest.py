"""A small simulated set of fragments and one of rooms, made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcnn.simulate.rooms.s3dis import simulate_rooms
from pcnn.simulate.rooms.threedmatch import simulate_fragments

FRAGMENTS = {"seed": 8, "train_scenes": 0, "val_scenes": 0, "test_scenes": 1, "fragments": 2}
ROOMS = {"seed": 2, "rooms": 1, "spacing": 0.12}


@pytest.fixture(scope="session")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One scene of two fragments, written by one process."""
    root = tmp_path_factory.mktemp("fragments") / "set"
    return simulate_fragments(root, workers=1, progress=False, **FRAGMENTS)


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six areas of one coarse room, as text."""
    root = tmp_path_factory.mktemp("rooms") / "set"
    return simulate_rooms(root, workers=1, progress=False, **ROOMS)
