from __future__ import annotations

import json
from pathlib import Path

import pytest

from pcnn.bench.rows import TIMES, Header, Row, read_rows, write_rows

HEADER_FIELDS = {"device": "cpu", "torch": "2.6.0", "revision": "abc", "date": "2026-01-31"}
HEADER = Header(**HEADER_FIELDS)


def test_a_file_holds_what_was_written_and_no_absent_keys(tmp_path: Path) -> None:
    rows = [
        Row("map", "scene", "reference", product="pairs", n=3, wall_ms=1.5, checked=True),
        Row("layer", "scene", "reference", triplets=0, k=3, stride=1),
    ]
    path = write_rows(tmp_path / "new" / "layers-cpu.json", HEADER, rows)
    content = json.loads(path.read_text())
    assert content["header"] == HEADER_FIELDS
    wanted = {"what": "map", "product": "pairs", "workload": "scene", "engine": "reference"}
    assert content["rows"][0] == {**wanted, "n": 3, "wall_ms": 1.5, "checked": True}
    assert content["rows"][1]["triplets"] == 0, "zero is a value, not an absent key"
    assert read_rows(path) == (HEADER, rows)
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no temporary is left"


def test_a_time_without_a_check_and_unknown_kinds_are_refused() -> None:
    for time in TIMES:
        with pytest.raises(ValueError, match="was not verified"):
            Row("layer", "scene", "reference", **{time: 1.0})
    for fields in ({"what": "nap"}, {"product": "everything"}, {"cache": "lukewarm"}):
        with pytest.raises(ValueError, match=f"{next(iter(fields))} must be one of"):
            Row(**{"what": "map", "workload": "scene", "engine": "reference", **fields})


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


def test_other_files_and_keys_beyond_the_format_are_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    for text in ("", "{}", '{"header": {}}', "[1, 2]"):
        path.write_text(text)
        with pytest.raises(ValueError, match="not a benchmark result file"):
            read_rows(path)
    path = write_rows(tmp_path / "rows.json", HEADER, [Row("map", "scene", "reference")])
    path.write_text(path.read_text().replace('"what"', '"colour": "red", "what"'))
    with pytest.raises(ValueError, match=r"row 0: unknown keys colour"):
        read_rows(path)
