from __future__ import annotations

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


class Simulated:
    """Stands in for a simulator; keeps the folders that it wrote."""

    def folder(self, data: Path, given: dict[str, Any]) -> Path:
        return data / "simulated" / "streets-0-1"

    def write(self, root: Path, calls: list[Path]) -> Path:
        calls.append(root)
        return simulated(root)


SIMULATOR = Simulated()


def real(path: Path) -> Path:
    (path / "sequences").mkdir(parents=True)
    return path


def simulated(path: Path) -> Path:
    (path / "sequences").mkdir(parents=True, exist_ok=True)
    (path / "SIMULATED.json").write_text("{}")
    return path


def found(
    tmp_path: Path, calls: list[Path], root: Path | None = None, source: str = "auto"
) -> DataSource:
    published = Published("Streets", "default", f"{__name__}:SIMULATOR", "Download it.")
    given = None if root is None else str(root)
    return published.found(given, source, str(tmp_path), {"calls": calls}, ["sequences"])


def test_what_is_simulated_is_said_and_a_default_root_is_real(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    calls: list[Path] = []
    made = found(tmp_path, calls)
    assert made == DataSource(tmp_path / "simulated" / "streets-0-1", "simulated")
    assert calls == [made.root]
    assert [caplog.text.count(told) for told in ("SIMULATED", "no root was given")] == [1, 1]
    with pytest.raises(FileNotFoundError, match="default is not a folder"):
        found(tmp_path, calls, source="real")
    real(tmp_path / "default")
    assert found(tmp_path, calls) == DataSource(tmp_path / "default", "real")
    assert len(calls) == 1
    assert found(tmp_path, calls, source="simulated").kind == "simulated"
    no_simulator = Published("Streets", "default", "no.module:SIMULATOR", "Download it.")
    assert no_simulator.found(None, "auto", str(tmp_path), None).kind == "real"
    with pytest.raises(ModuleNotFoundError):
        no_simulator.found(None, "simulated", str(tmp_path), None)


def test_a_root_that_does_not_serve_is_never_replaced(tmp_path: Path):
    calls: list[Path] = []
    made, own = simulated(tmp_path / "made"), real(tmp_path / "own")
    (made / "part" / "sequences").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for root in (made, made / "part"):  # the kind of a root is that of a marker at or above it
        assert found(tmp_path, calls, root).kind == "simulated"
    for root, sources, words in (
        (tmp_path / "none", ("auto", "real"), "none is not a folder"),
        (tmp_path / "empty", ("auto", "real"), "empty lacks sequences"),
        (made, ("real",), "holds simulated data"),
        (own, ("simulated",), "holds real data"),
        (own, ("fake",), "auto, real, simulated"),
    ):
        for source in sources:
            with pytest.raises((FileNotFoundError, ValueError), match=words):
                found(tmp_path, calls, root, source)
    assert not calls


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
