from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from pcnn.datasets.source import DataSource, resolve_source


class Simulator:
    """Writes a folder that counts as simulated, as often as it is asked to."""

    def __init__(self) -> None:
        self.calls: list[Path] = []

    def __call__(self, root: Path) -> Path:
        self.calls.append(root)
        (root / "sequences").mkdir(parents=True, exist_ok=True)
        (root / "SIMULATED.json").write_text(json.dumps({}))
        return root


@pytest.fixture
def simulator() -> Simulator:
    return Simulator()


def resolve(
    tmp_path: Path, simulator: Simulator, root: Path | None = None, source: str = "auto"
) -> DataSource:
    return resolve_source(
        "Streets",
        root,
        source,
        tmp_path / "default",
        tmp_path / "simulated" / "streets-0-1",
        simulator,
        ["sequences"],
        "Download it.",
    )


def real(path: Path) -> Path:
    (path / "sequences").mkdir(parents=True)
    return path


def test_nothing_given_and_nothing_there_simulates_and_says_so(
    tmp_path: Path, simulator: Simulator, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        found = resolve(tmp_path, simulator)
    assert found == DataSource(tmp_path / "simulated" / "streets-0-1", "simulated")
    assert simulator.calls == [found.root]
    assert any("no root was given and" in m and "does not exist" in m for m in caplog.messages)
    assert any("SIMULATED data from" in message for message in caplog.messages)


def test_the_default_root_is_real_where_it_exists(tmp_path: Path, simulator: Simulator):
    real(tmp_path / "default")
    assert resolve(tmp_path, simulator) == DataSource(tmp_path / "default", "real")
    assert not simulator.calls


def test_simulated_may_be_asked_for(tmp_path: Path, simulator: Simulator):
    real(tmp_path / "default")
    assert resolve(tmp_path, simulator, source="simulated").kind == "simulated"


@pytest.mark.parametrize("source", ["auto", "real"])
def test_a_root_that_lacks_something_is_never_replaced(
    tmp_path: Path, simulator: Simulator, source: str
):
    with pytest.raises(FileNotFoundError, match=r"given is not a folder\. Download it\."):
        resolve(tmp_path, simulator, tmp_path / "given", source)
    (tmp_path / "given").mkdir()
    with pytest.raises(FileNotFoundError, match=r"given lacks sequences\. Download it\."):
        resolve(tmp_path, simulator, tmp_path / "given", source)
    assert not simulator.calls


def test_a_default_root_that_lacks_something_is_never_replaced(
    tmp_path: Path, simulator: Simulator
):
    (tmp_path / "default").mkdir()
    with pytest.raises(FileNotFoundError, match="default lacks sequences"):
        resolve(tmp_path, simulator)
    assert not simulator.calls


def test_real_without_any_root(tmp_path: Path, simulator: Simulator):
    with pytest.raises(FileNotFoundError, match="default is not a folder"):
        resolve(tmp_path, simulator, source="real")


def test_simulated_data_counts_as_simulated_wherever_it_lies(tmp_path: Path, simulator: Simulator):
    given = simulator(tmp_path / "given")
    (given / "part" / "sequences").mkdir(parents=True)
    for root in (given, given / "part"):
        assert resolve(tmp_path, simulator, root).kind == "simulated"
        with pytest.raises(ValueError, match=r"source=real, but .* holds simulated data"):
            resolve(tmp_path, simulator, root, "real")


def test_real_data_is_not_simulated(tmp_path: Path, simulator: Simulator):
    with pytest.raises(ValueError, match=r"source=simulated, but .* holds real data"):
        resolve(tmp_path, simulator, real(tmp_path / "given"), "simulated")


def test_unknown_source(tmp_path: Path, simulator: Simulator):
    with pytest.raises(ValueError, match="auto, real, simulated"):
        resolve(tmp_path, simulator, source="fake")
