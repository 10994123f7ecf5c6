"""A small simulated set and a street, made once for all tests of the generator."""

from __future__ import annotations

from pathlib import Path

import pytest

from pcnn.simulate.streets.kitti import simulate_kitti
from pcnn.simulate.streets.street import Street

SMALL = {"seed": 3, "train_scans": 1, "val_scans": 2, "frame_stride": 10}


@pytest.fixture(scope="session")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sequences 00 (one scan) and 08 (two scans), written by one process."""
    root = tmp_path_factory.mktemp("sets") / "small"
    return simulate_kitti(root, workers=1, progress=False, **SMALL)


@pytest.fixture(scope="session")
def street() -> Street:
    """A street of the validation ranges; its blocks are kept between tests."""
    return Street(seed=0, sequence=8, split="val")
