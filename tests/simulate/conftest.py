"""Small simulated sets and a street, made once for all tests of the simulators."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcnn.simulate.rooms.s3dis import S3DIS
from pcnn.simulate.rooms.threedmatch import THREEDMATCH
from pcnn.simulate.streets.kitti import KITTI
from pcnn.simulate.streets.street import Street

STREETS = {"seed": 3, "train_scans": 1, "val_scans": 2, "frame_stride": 10}
FRAGMENTS = {"seed": 9, "train_scenes": 0, "val_scenes": 0, "test_scenes": 1, "fragments": 2}
ROOMS = {"seed": 2, "rooms": 1, "spacing": 0.12}


@pytest.fixture(scope="session")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences 00 (one scan) and 08 (two scans), written by one process."""
    return KITTI.write(tmp_path_factory.mktemp("s") / "set", workers=1, progress=False, **STREETS)


@pytest.fixture(scope="session")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One scene of two fragments."""
    root = tmp_path_factory.mktemp("fragments") / "set"
    return THREEDMATCH.write(root, workers=1, progress=False, **FRAGMENTS)


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six areas of one coarse room."""
    return S3DIS.write(tmp_path_factory.mktemp("r") / "set", workers=1, progress=False, **ROOMS)


@pytest.fixture(scope="session")
def street() -> Street:
    """A street of the validation ranges; its blocks are kept between tests."""
    return Street(seed=0, sequence=8, split="val")
