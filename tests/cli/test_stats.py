"""`pcnn stats` prints, draws and stores statistics, and names what it cannot read."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pcnn.files.simulated import MARKER
from tests.cli.invoking import invoke
from tests.datasets.test_bin_files import nuscenes

run = partial(invoke, "stats", "--no-progress")


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders of three clouds each; the second is marked simulated."""
    folders = []
    for seed, name in enumerate(("mine", "theirs")):
        folder = tmp_path / name
        folder.mkdir()
        for n in range(3):
            rng = np.random.default_rng([seed, n])
            points = rng.normal(0, 5 + seed, (200, 4)).astype(np.float32)
            points[:, 3] = rng.random(200)
            points.tofile(folder / f"{n:06d}.bin")
        folders.append(folder)
    (folders[1] / MARKER).write_text("{}")
    return folders[0], folders[1]


def test_two_sets_on_one_page(sets: tuple[Path, Path], tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.png"
    text = run(*sets, "--out", page)
    for expected in ("mine", "theirs (SIMULATED)", "clouds", "EMD of range", "median remission"):
        assert expected in text
    assert page.read_bytes().startswith(b"\x89PNG")
    content = json.loads(page.with_suffix(".json").read_text())
    assert [s["source"] for s in content["sets"]] == ["real", "simulated"]
    assert content["sets"][0]["points"] == [200, 200, 200]
    assert content["distances_to_first"]["theirs"]["range"] > 0.5


def test_stored_numbers_stand_for_a_set(sets: tuple[Path, Path], tmp_path: Path) -> None:
    run(sets[0], "--out", tmp_path / "mine.png")
    text = run(tmp_path / "mine.json", sets[0], "--name", "stored", "--name", "measured")
    assert "EMD of range - 0 m" in text
    stored = (tmp_path / "mine.json").read_text()
    text = run(tmp_path / "mine.json", sets[1], "--out", tmp_path / "mine.png", code=2)
    assert (tmp_path / "mine.json").read_text() == stored
    assert "which this command reads" in text


def test_limit_and_voxel_sizes(sets: tuple[Path, Path]) -> None:
    text = run(sets[0], "--limit", 2, "--voxel", 0.5)
    assert "clouds 2" in text
    assert "neighbours at 0.5 m" in text


def test_what_cannot_be_read_is_named(sets: tuple[Path, Path]) -> None:
    (sets[0] / "000001.bin").write_bytes(b"short")
    text = run(sets[0], code=1)
    assert "clouds 2" in text
    assert "not read" in text
    assert "000001.bin" in text


def test_far_medians_and_missing_returns_are_said(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(0, 900, (300, 4)).astype(np.float32)
    points[:, 3] = 0.5
    points[:7] = 0
    points.tofile(tmp_path / "far.bin")
    text = run(tmp_path / "far.bin", tmp_path, "--out", tmp_path / "page.png")
    assert "median range > 120 m > 120 m" in text
    assert "EMD of range - ≥ 0 m" in text
    assert "7 rows without a return (NaN or zeros) left out" in text


def test_a_format_without_its_package_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.las").write_bytes(b"LASF")
    monkeypatch.setitem(sys.modules, "laspy", None)
    text = run(tmp_path / "a.las", code=2)
    assert "laspy" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no such file or folder"),
        (["{0}", "{0}"], "given twice"),
        (["{0}", "--voxel", "0"], "above 0"),
        (["{0}", "--name", "a", "--name", "b"], "--name is given 2 times for 1 path:"),
        (["{0}", "--out", "page.pdf"], "must end in .png"),
        (["{0}"] * 7, "at most 6"),
    ],
)
def test_bad_requests_end_politely(
    sets: tuple[Path, Path], arguments: list[str], message: str
) -> None:
    text = run(*(a.format(sets[0]) for a in arguments), code=2)
    assert message in text


def test_columns_of_a_bin_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    nuscenes(800).tofile(path)
    text = run(path, code=2)
    assert "--columns nuscenes" in text
    out = tmp_path / "page.png"
    text = run(path, "--columns", "nuscenes", "--out", out)
    assert "remission" in json.loads(out.with_suffix(".json").read_text())["histograms"]
