"""Numbers are those of the commit whose digests tests/digests.json holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.digests import CASES, ENGINES, FILE, network_digest, trainings
from tests.tolerance import DIGEST, DIGEST_FLOAT32, TRAINING

COMMITTED: dict[str, Any] = json.loads(FILE.read_text())


def check(found: dict[str, list[float]], name: str, tolerance: float) -> None:
    """Every digest agrees with the committed one, up to a tolerance of its largest value."""
    committed = COMMITTED["networks"][name]
    assert found.keys() == committed.keys()
    for part, values in found.items():
        rows, *expected = committed[part]
        size = max(map(abs, expected), default=0.0)
        assert values[0] == rows, (name, part)
        assert values[1:] == pytest.approx(expected, rel=0, abs=tolerance * size), (name, part)


@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_networks(name: str, geometry: str) -> None:
    check(network_digest(name, geometry, torch.float64), f"{name} {geometry}", DIGEST)


@pytest.mark.parametrize(("engine", "geometry"), ENGINES)
def test_engines_and_float32(engine: str, geometry: str) -> None:
    found = network_digest("minkunet", geometry, torch.float32, engine)
    check(found, f"minkunet {geometry}", DIGEST_FLOAT32)


def test_trainings(tmp_path: Path) -> None:
    found = trainings(tmp_path)
    assert found.keys() == COMMITTED["trainings"].keys()
    for name, metrics in found.items():
        assert metrics == pytest.approx(COMMITTED["trainings"][name], abs=TRAINING), name
