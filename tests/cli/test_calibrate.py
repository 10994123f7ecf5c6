"""`pcnn calibrate` fits a verifier to pairs as clouds lie, or turned at random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcnn.registration.calibration import JudgedPair, judged_pairs
from pcnn.registration.descriptor import Descriptor, TurnedAtRandom
from pcnn.registration.network_descriptor import NetworkDescriptor
from pcnn.registration.settings import EstimateSettings
from pcnn.registration.verifier import read_verifier
from tests.cli.invoking import invoke
from tests.registration.test_calibration import Places


def test_a_verifier_is_fitted_to_clouds_as_they_lie_or_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, asked = Places(), []

    def judged(
        data: Places, descriptor: Descriptor, settings: EstimateSettings, *_: Any
    ) -> list[JudgedPair]:
        asked.append(descriptor)
        return judged_pairs(data, data, settings, 2000, 5)

    monkeypatch.setattr("pcnn.registration.calibration.judged_pairs", judged)
    monkeypatch.setattr("pcnn.datasets.registration.threedmatch.IndoorPairs", lambda *_: data)
    out = tmp_path / "own.json"
    told = "calibrate", tmp_path, "--out", out, "--device", "cpu"
    invoke(*told, code=0)
    assert isinstance(asked[0], NetworkDescriptor)
    assert read_verifier(out).made.startswith("pcnn calibrate --model interiors --pairs 25 ")
    invoke(*told, "--turn-clouds", 0, code=0)  # 0 is a seed
    assert isinstance(asked[1], TurnedAtRandom)
    assert (asked[1].seed, asked[1].voxel_size) == (0, asked[0].voxel_size)
    assert " --model interiors --turn-clouds 0 --pairs 25 " in read_verifier(out).made
    # drives are told by their folder
    (tmp_path / "sequences").mkdir()
    drives: list[tuple[Any, ...]] = []

    def of_drives(*args: Any, distances: tuple[float, float]) -> Places:
        drives.append((*args, distances))
        return data

    monkeypatch.setattr("pcnn.datasets.registration.KITTIOdometry", of_drives)
    invoke(*told, "--model", "streets", code=0)
    assert drives == [(tmp_path, "train", "odometry", (5.0, 25.0))]
    assert asked[2].voxel_size == pytest.approx(0.3)
    assert ", on simulated drives: 4 pairs that overlap, " in read_verifier(out).made
    out.write_text('{"key": 1}')
    assert "own.json: is no verifier; name another file" in invoke(*told, code=2)
