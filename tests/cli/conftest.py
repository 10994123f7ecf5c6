from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_predict import saved


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    return saved(tmp_path / "kitti.ckpt", "kitti", ["intensity"], crop=None)
