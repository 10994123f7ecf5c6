"""Simulated fragments against a real scene, described by stored numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pcnn.simulate.rooms.threedmatch import simulate_fragments
from tests.simulate.rooms.fragment_statistics import fragment_statistics

REAL = Path(__file__).parent / "hotel3.json"
SCENE = "threedmatch/sun3d-hotel_umd-maryland_hotel3"


@pytest.mark.slow
def test_medians_agree_within_a_fifth(tmp_path: Path) -> None:
    root = simulate_fragments(
        tmp_path / "set", train_scenes=6, val_scenes=0, test_scenes=0, fragments=12, progress=False
    )
    scenes = [fragment_statistics(folder) for folder in sorted((root / "data/train").iterdir())]
    real = json.loads(REAL.read_text())
    for name, values in real.items():
        simulated = [value for scene in scenes for value in scene[name]]
        assert np.median(simulated) == pytest.approx(np.median(values), rel=0.2), name


@pytest.mark.data
def test_stored_numbers_are_those_of_the_real_scene(data_root: Path) -> None:
    assert fragment_statistics(data_root / SCENE) == json.loads(REAL.read_text())
