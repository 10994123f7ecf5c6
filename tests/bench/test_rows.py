from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcnn.bench.rows import Header, Row, read_rows, write_rows

HEADER = Header(device="cpu", torch="2.6.0", revision="abc", date="2026-01-31")


def test_a_file_holds_what_was_written_and_no_absent_keys(tmp_path: Path) -> None:
    rows = [
        Row("map", "scene", "reference", product="pairs", n=3, wall_ms=1.5, checked=True),
        Row("layer", "scene", "reference", triplets=0, k=3, stride=1),
    ]
    path = write_rows(tmp_path / "new" / "layers-cpu.json", HEADER, rows)
    content = json.loads(path.read_text())
    assert content["header"] == {
        "device": "cpu",
        "torch": "2.6.0",
        "revision": "abc",
        "date": "2026-01-31",
    }
    assert content["rows"][0] == {
        "what": "map",
        "product": "pairs",
        "workload": "scene",
        "engine": "reference",
        "n": 3,
        "wall_ms": 1.5,
        "checked": True,
    }
    assert content["rows"][1]["triplets"] == 0, "zero is a value, not an absent key"
    assert read_rows(path) == (HEADER, rows)
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no temporary is left"


def test_no_rows_is_a_file_too(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "empty.json", HEADER, [])
    assert read_rows(path) == (HEADER, [])


@pytest.mark.parametrize("time", ["gpu_ms", "wall_ms", "min_ms", "p90_ms"])
def test_a_time_without_a_check_is_refused(time: str) -> None:
    with pytest.raises(ValueError, match="was not verified"):
        Row("layer", "scene", "reference", **{time: 1.0})


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="what must be one of"):
        Row("nap", "scene", "reference")
    with pytest.raises(ValueError, match="product must be one of"):
        Row("map", "scene", "reference", product="everything")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = write_rows(tmp_path / "rows.json", HEADER, [])
    before = path.read_text()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_rows(path, HEADER, [Row("map", "scene", "reference")])
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.parametrize("text", ["", "{}", '{"header": {}}', "[1, 2]"])
def test_other_files_are_named_as_such(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="not a benchmark result file"):
        read_rows(path)


def test_keys_beyond_the_format_are_named(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.json", HEADER, [Row("map", "scene", "reference")])
    path.write_text(path.read_text().replace('"what"', '"colour": "red", "what"'))
    with pytest.raises(ValueError, match=r"row 0: unknown keys colour"):
        read_rows(path)
