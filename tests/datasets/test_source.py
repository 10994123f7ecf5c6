from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from pcnn.datasets import S3DISSets, SemanticKITTISets
from pcnn.datasets.cloud_sets import DataSource, Published
from pcnn.datasets.registration import KITTISets, ThreeDMatchSets
from pcnn.files.simulated import write_marker
from pcnn.simulate.rooms import s3dis, threedmatch
from pcnn.simulate.simulator import Simulator
from pcnn.simulate.streets import kitti as streets
from tests.datasets.registration.training_sets import write_predator


@pytest.fixture
def simulated() -> list[Path]:
    """The folders that were simulated."""
    return []


def simulate(root: Path, calls: list[Path]) -> Path:
    """Write a folder that counts as simulated."""
    calls.append(root)
    (root / "sequences").mkdir(parents=True, exist_ok=True)
    (root / "SIMULATED.json").write_text("{}")
    return root


class Simulated:
    """Stands in for a simulator; keeps the folders that it wrote."""

    def folder(self, data: Path, given: dict[str, Any]) -> Path:
        return data / "simulated" / "streets-0-1"

    def write(self, root: Path, calls: list[Path]) -> Path:
        return simulate(root, calls)


SIMULATOR = Simulated()


def resolve(
    tmp_path: Path, calls: list[Path], root: Path | None = None, source: str = "auto"
) -> DataSource:
    simulator = f"{__name__}:SIMULATOR"
    published = Published("Streets", "default", simulator, "Download it.")
    given = None if root is None else str(root)
    return published.found(given, source, str(tmp_path), {"calls": calls}, ["sequences"])


def real(path: Path) -> Path:
    (path / "sequences").mkdir(parents=True)
    return path


def test_nothing_given_and_nothing_there_simulates_and_says_so(
    tmp_path: Path, simulated: list[Path], caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        found = resolve(tmp_path, simulated)
    assert found == DataSource(tmp_path / "simulated" / "streets-0-1", "simulated")
    assert simulated == [found.root]
    assert any("no root was given and" in m and "does not exist" in m for m in caplog.messages)
    assert any("SIMULATED data from" in message for message in caplog.messages)


def test_the_default_root_is_real_where_it_exists(tmp_path: Path, simulated: list[Path]):
    with pytest.raises(FileNotFoundError, match="default is not a folder"):
        resolve(tmp_path, simulated, source="real")
    real(tmp_path / "default")
    assert resolve(tmp_path, simulated) == DataSource(tmp_path / "default", "real")
    assert not simulated
    assert resolve(tmp_path, simulated, source="simulated").kind == "simulated"


def test_a_real_set_imports_no_simulator(tmp_path: Path):
    published = Published("Streets", "streets", "no.module:SIMULATOR", "Download it.")
    found = published.found(str(real(tmp_path / "own")), "auto", str(tmp_path), None)
    assert found.kind == "real"
    with pytest.raises(ModuleNotFoundError):
        published.found(None, "simulated", str(tmp_path), None)


def test_a_root_that_lacks_something_is_never_replaced(tmp_path: Path, simulated: list[Path]):
    given = tmp_path / "given"
    for there, words in ((False, "is not a folder"), (True, "lacks sequences")):
        for source in ("auto", "real"):
            with pytest.raises(FileNotFoundError, match=rf"given {words}\. Download it\."):
                resolve(tmp_path, simulated, given, source)
        given.mkdir(exist_ok=there)
    (tmp_path / "default").mkdir()
    with pytest.raises(FileNotFoundError, match="default lacks sequences"):
        resolve(tmp_path, simulated)
    assert not simulated


def test_the_kind_of_a_root_is_that_of_its_marker(tmp_path: Path, simulated: list[Path]):
    given = simulate(tmp_path / "given", simulated)
    (given / "part" / "sequences").mkdir(parents=True)
    for root in (given, given / "part"):
        assert resolve(tmp_path, simulated, root).kind == "simulated"
        with pytest.raises(ValueError, match=r"source=real, but .* holds simulated data"):
            resolve(tmp_path, simulated, root, "real")
    with pytest.raises(ValueError, match=r"source=simulated, but .* holds real data"):
        resolve(tmp_path, simulated, real(tmp_path / "other"), "simulated")
    with pytest.raises(ValueError, match="auto, real, simulated"):
        resolve(tmp_path, simulated, source="fake")


def some_files(root: Path, **settings: Any) -> Path:
    """Stand in for every simulator."""
    if not root.exists():
        for name in ("sequences", "poses"):
            (root / name).mkdir(parents=True)
        write_predator(root, ("a", "b"), 2)
        write_marker(root, settings)
    return root


@pytest.mark.parametrize(
    ("sets", "simulator", "changed", "name"),
    [
        (SemanticKITTISets, streets.KITTI, {"val_scans": 1}, "val_scans-1"),
        (S3DISSets, s3dis.S3DIS, {"rooms": 1}, "rooms-1"),
        (KITTISets, streets.KITTI, {"train_scans": 5}, "train_scans-5"),
        (ThreeDMatchSets, threedmatch.THREEDMATCH, {"train_scenes": 1}, "train_scenes-1"),
    ],
)
def test_sets_without_a_root_are_simulated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sets: Any,
    simulator: Simulator,
    changed: dict[str, int],
    name: str,
):
    asked: list[dict[str, Any]] = []

    def write(self: Simulator, root: Path, **settings: Any) -> Path:
        asked.append(settings)
        return some_files(root, **settings)

    monkeypatch.setattr(Simulator, "write", write)
    given = {"seed": 3, "workers": 2, **changed}
    options = {} if hasattr(sets, "found") else {"simulate_train": given}
    made = sets(data_dir=str(tmp_path), simulate=given, **options)
    assert asked == []
    if hasattr(sets, "found"):
        found, again = made.found, made.found
        root, kind = found.root, found.kind
        assert again is found
    else:
        pairs = [made.find(split) for split in ("train", "val")] if sets is ThreeDMatchSets else []
        root, kind = made._trained.root, made._trained.kind
        assert all(data.source_kind == "simulated" for data in pairs)
    assert kind == "simulated"
    assert asked[0].items() >= given.items()
    assert len(asked) == 1  # splits of one set are found once, and told once
    assert root == tmp_path / "simulated" / f"{simulator.name}-3-{simulator.version}-{name}"
    assert [caplog.text.count(told) for told in ("SIMULATED", "no root was given")] == [1, 1]
