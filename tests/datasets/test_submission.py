from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.prediction_files import missing_sequences, write_submission
from pcnn.datasets.readers.label_files import write_label_file

EXPECTED = {"12/000001": 3, "11/000000": 5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, points in EXPECTED.items():
        sequence, scan = name.split("/")
        path = tmp_path / "sequences" / sequence / "predictions" / f"{scan}.label"
        write_label_file(path, np.resize([40, 10, 0], points))
    return tmp_path


def test_the_zip_holds_the_files_in_the_official_places(folder: Path) -> None:
    (folder / "sequences" / "11" / "predictions" / "of_another_run.label").write_bytes(b"")
    assert write_submission(folder, EXPECTED, folder / "out.zip") == 2
    with zipfile.ZipFile(folder / "out.zip") as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "sequences/11/predictions/000000.label",
            "sequences/12/predictions/000001.label",
        ]
        words = np.frombuffer(archive.read("sequences/11/predictions/000000.label"), "<u4")
    assert words.tolist() == [40, 10, 0, 40, 10]
    assert missing_sequences(EXPECTED) == [f"{n:02d}" for n in range(13, 22)]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "16 bytes for a scan of 5"),
        (lambda path: write_label_file(path, np.full(5, 252)), "the id 252, of no class"),
    ],
)
def test_a_missing_short_or_unofficial_file_stops_it(folder: Path, damage, said: str) -> None:
    target = folder / "out.zip"
    target.write_bytes(b"the one before")
    damage(folder / "sequences" / "11" / "predictions" / "000000.label")
    with pytest.raises(ValueError, match=rf"000000\.label.*{said}"):
        write_submission(folder, EXPECTED, target)
    assert target.read_bytes() == b"the one before"
    assert not list(folder.glob(".*.part"))


def test_a_submission_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no scans"):
        write_submission(tmp_path, {}, tmp_path / "out.zip")
