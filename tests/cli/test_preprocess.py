"""`pcnn preprocess` makes what trainings read, keeps what is there, and names what is broken."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pcnn.datasets import cache
from pcnn.experiment import build
from pcnn.experiment.run_config import checked
from tests.cli.invoking import invoke
from tests.datasets.clouds import write_scan
from tests.test_configs import composed


def run(*words: object, code: int = 0) -> str:
    return invoke("preprocess", *words, "--no-progress", code=code)


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    for frame in range(4):
        write_scan(tmp_path / "kitti", 0, frame, 300)
    write_scan(tmp_path / "kitti", 8, 0, 300)
    return tmp_path / "kitti"


def words(root: Path, folder: Path) -> tuple[str, ...]:
    """Options of the training."""
    data = f"dataset.data_dir={folder / 'data'}"
    return f"dataset.root={root}", data, "dataset.train_sequences=[0]"


def never(*_: object) -> Any:
    raise AssertionError("a file was made again")


@pytest.mark.parametrize("geometry", ["voxel", "point"])
def test_a_training_finds_what_was_made(
    kitti: Path, tmp_path: Path, geometry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (*words(kitti, tmp_path), f"geometry={geometry}")
    assert "5 clouds: 4 made, 1 read without problems" in run(*options, "--workers", 2)
    monkeypatch.setattr(cache, "write_entry", never)
    assert "4 already there" in run(*options, "--workers", 0)
    dataset = build.data(checked(composed(*map(str, options)))).build("train")
    for index in range(4):
        assert dataset[index].geometry.rows


def test_what_is_broken_is_named_and_stops_nothing(kitti: Path, tmp_path: Path) -> None:
    velodyne = kitti / "sequences" / "00" / "velodyne"
    os.truncate(velodyne / "000001.bin", 1003)
    os.truncate(kitti / "sequences" / "08" / "labels" / "000000.label", 10)
    options = (*words(kitti, tmp_path), "--workers", 0)
    text = run(*options, code=1)
    assert "5 clouds: 3 made, 2 not done" in text
    assert "000001.bin: " in text
    assert "000000.label: " in text
    write_scan(kitti, 0, 1, 300)
    assert "1 made, 3 already there" in run(*options, "--no-check")
    assert not list((tmp_path / "data").rglob("*.part"))


def test_a_process_that_dies_is_an_error(
    kitti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "write_entry", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    assert "stopped: " in run(*words(kitti, tmp_path), "--workers", 1, code=1)
