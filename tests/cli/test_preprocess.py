"""`pcnn preprocess` makes what trainings read, keeps what is there, and names what is broken."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcnn.datasets import cache
from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.preparation import FillCache, prepared
from pcnn.datasets.s3dis.files import array_files
from pcnn.errors import FileError
from pcnn.experiment import build
from pcnn.experiment.check import checked
from tests.cli.invoking import invoke
from tests.datasets.clouds import write_scan
from tests.datasets.las_files import write_las
from tests.datasets.s3dis_rooms import write_set
from tests.forking import require_fork
from tests.test_configs import composed


def run(*words: object, code: int = 0) -> str:
    return invoke("preprocess", *words, "--no-progress", code=code)


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    for frame in range(4):
        write_scan(tmp_path / "kitti", 0, frame, 300)
    write_scan(tmp_path / "kitti", 8, 0, 300)
    return tmp_path / "kitti"


def never(*_: object) -> Any:
    raise AssertionError("a file was made again")


@pytest.mark.parametrize("geometry", ["voxel", "point"])
def test_a_training_finds_what_was_made(
    kitti: Path, tmp_path: Path, geometry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--sequence", 0, "--data-dir", tmp_path / "data", "--geometry", geometry)
    assert "5 clouds: 4 made, 1 read without problems" in run(
        "kitti", kitti, *options, "--workers", 2
    )
    monkeypatch.setattr(cache, "_write", never)
    assert "4 already there" in run("kitti", kitti, *options, "--workers", 0)
    cfg = composed(
        f"dataset.root={kitti}",
        f"dataset.data_dir={tmp_path / 'data'}",
        "dataset.train_sequences=[0]",
        f"geometry={geometry}",
    )
    dataset = build.data(checked(cfg)).build("train")
    for index in range(4):
        assert dataset[index].geometry.rows


def test_what_is_broken_is_named_and_stops_nothing(kitti: Path, tmp_path: Path) -> None:
    velodyne = kitti / "sequences" / "00" / "velodyne"
    os.truncate(velodyne / "000001.bin", 1003)
    os.truncate(velodyne / "000002.bin", 0)
    os.truncate(kitti / "sequences" / "00" / "labels" / "000002.label", 0)
    os.truncate(kitti / "sequences" / "08" / "labels" / "000000.label", 10)
    options = ("--sequence", 0, "--data-dir", tmp_path / "data", "--workers", 0)
    text = run("kitti", kitti, *options, code=1)
    assert "5 clouds: 2 made, 3 not done" in text
    assert "000001.bin: 1003 bytes are not a whole number" in text
    assert "000002.bin: no points" in text
    assert "000000.label: 10 bytes are no whole number" in text
    write_scan(kitti, 0, 1, 300)
    text = run("kitti", kitti, *options, "--no-check", code=1)
    assert "1 made, 2 already there, 1 not done" in text
    assert not list((tmp_path / "data").rglob("*.part"))


def test_own_clouds(tmp_path: Path) -> None:
    for index in range(5):
        write_las(tmp_path / "tiles" / f"{index}.laz", seed=index)
    classes = tmp_path / "classes.yaml"
    classes.write_text("names: [low, high]\nmap: {2: low, 5: high, 6: high}\nignore: [1]\n")
    unlabelled = write_las(tmp_path / "tiles" / "train.las")
    unlabelled.classification[:] = 1
    unlabelled.write(tmp_path / "tiles" / "train.las")
    own = ("folder", tmp_path / "tiles", "--classes", classes, "--data-dir", tmp_path / "data")
    text = run(*own, "--workers", 0)
    assert "made" in text
    assert "read without problems" in text
    assert "train.las: no labelled point" in text
    (tmp_path / "tiles" / "torn.ply").write_text("ply\nformat ascii 1.0\n")
    write_las(tmp_path / "tiles" / "strange.las")
    np.save(tmp_path / "tiles" / "strange_label.npy", np.full(40, 3))
    text = run(*own, "--workers", 0, code=1)
    assert "torn.ply: no end_header line" in text
    assert "strange_label.npy: raw label 3 (40 points) is not in the label map" in text
    assert "already there" in text


def test_rooms_become_arrays(tmp_path: Path) -> None:
    rooms = {"Area_1/office_1": 60, "Area_5/hallway_2": 50}
    write_set(tmp_path / "raw", rooms, layout="text")
    (tmp_path / "raw" / "SIMULATED.json").write_text("{}")
    words = ("s3dis", tmp_path / "raw", "--data-dir", tmp_path / "data", "--workers", 0)
    text = run(*words)
    assert "2 rooms: 2 made" in text
    assert "1 cloud: 1 made" in text
    target = tmp_path / "data" / "s3dis"
    for room in rooms:
        assert all(path.is_file() for path in array_files(target / room))
    assert (target / "SIMULATED.json").is_file()
    (target / "Area_1" / "office_1" / "coord.npy").unlink()  # as a run leaves it that was stopped
    assert "1 made, 1 already there" in run(*words, "--no-cache")
    again = ("s3dis", tmp_path / "raw", "--out", tmp_path / "raw")
    assert "folder of the raw rooms" in run(*again, code=2)


def test_turned_rooms_stay_among_themselves(tmp_path: Path) -> None:
    write_set(tmp_path / "raw", {"Area_1/office_1": 60, "Area_1/WC_1": 9}, layout="text")
    path = tmp_path / "raw" / "Area_1" / "Area_1_alignmentAngle.txt"
    path.write_text("office_1 90\nWC_1 180\n")
    words = ("s3dis", tmp_path / "raw", "--out", tmp_path / "out", "--workers", 0, "--no-cache")
    run(*words)
    assert "holds 2 rooms that were written without --align" in run(*words, "--align", code=2)
    words = ("s3dis", tmp_path / "raw", "--out", tmp_path / "turned", *words[4:])
    run(*words, "--align")
    (tmp_path / "turned" / "Area_1" / "WC_1" / "coord.npy").unlink()
    assert "1 made, 1 already there" in run(*words, "--align")
    assert "holds 2 rooms that were written with --align" in run(*words, code=2)


def test_large_clouds_become_tiles(tmp_path: Path) -> None:
    write_las(tmp_path / "in" / "a.las", 200)
    (tmp_path / "in" / "torn.laz").write_bytes(b"LASF")
    words = ("tiles", tmp_path / "in", tmp_path / "out", "--size", 20, "--least", 1)
    text = run(*words, "--workers", 0, code=1)
    assert "2 clouds: 1 made, 1 not done" in text
    assert "torn.laz: not a whole LAS file" in text
    assert len(list((tmp_path / "out").glob("a_*_*.laz"))) >= 4
    inside = ("tiles", tmp_path / "in", tmp_path / "in" / "out")
    assert "lies among the clouds" in run(*inside, code=2)
    (tmp_path / "empty").mkdir()
    assert "no cloud" in run("tiles", tmp_path / "empty", tmp_path / "x", code=2)


def test_settings_that_no_training_would_take(kitti: Path, tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path / "data")
    assert "must be voxel or point" in run("kitti", kitti, "--geometry", "points", *data, code=2)
    assert "none is not a folder" in run("kitti", tmp_path / "none", *data, code=2)
    assert "either classes" in run("folder", kitti, *data, code=2)
    assert "--workers" in run("kitti", kitti, "--workers", -1, *data, code=2)


class Failing(CloudDataset):
    """A set of two clouds that cannot be written."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 2

    def read(self, index: int) -> Any:
        raise self.error

    def name(self, index: int) -> str:
        return f"a/{index}"

    def keep(self, index: int) -> Any:
        return self.read(index)


def test_a_full_disk_ends_it() -> None:
    outcomes = list(prepared([FillCache(Failing(FileError("x.bin", "odd")))], workers=0))
    assert [o.problem for o in outcomes] == ["a/0: x.bin: odd", "a/1: x.bin: odd"]
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        list(prepared([FillCache(Failing(full))], workers=0))


class Killed(Failing):
    """Its first cloud takes the process with it, as the system does when memory runs out."""

    def keep(self, index: int) -> Any:
        os._exit(9)


def test_a_process_that_died_is_no_hang() -> None:
    require_fork()
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(prepared([FillCache(Killed(ValueError()))], workers=1))
