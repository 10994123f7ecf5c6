from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pcnn.datasets.cloud_sets import DataSource, Published


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
