"""Folders of real data are made alike from a checkout and from its git directory."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import real_data, real_figures
from pcnn.datasets import FolderSets, SemanticKITTI


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    drive = folder / "dataset/sequences/08"
    rooms = folder / "scannet/scannet_train_detection_data"
    for one in (drive / "velodyne", drive / "labels", drive / "image_2", rooms):
        one.mkdir(parents=True)
    np.ones((3, 4), "<f4").tofile(drive / "velodyne/000000.bin")
    np.array([40, 10, 0], "<u4").tofile(drive / "labels/000000.label")
    (drive / "image_2/000000.png").write_bytes(b"no data of ours")
    (drive / "calib.txt").write_text("P0:\n")
    vertices = np.array([[1, 2, 3, 255, 0, 51], [4, 5, 6, 0, 0, 0]], np.float32)
    np.save(rooms / "scene0000_00_vert.npy", vertices)
    np.save(rooms / "scene0000_00_sem_label.npy", np.array([7, 11], np.uint32))
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for call in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "files"]):
        subprocess.run([*git, *call], check=True)
    return folder


@pytest.mark.parametrize("name", sorted(real_data.SETS))
def test_a_checkout_and_its_git_directory_make_one_set(
    name: str, clone: Path, tmp_path: Path
) -> None:
    wanted = real_data.SETS[name]
    made = real_data.make(wanted, clone / ".git", tmp_path / "git")
    assert real_data.make(wanted, clone, tmp_path / "files") == made
    assert made != wanted.digest  # these are not the files of the figures
    with pytest.raises(SystemExit):
        real_data.make(replace(wanted, pattern="nothing"), clone, tmp_path / "none")


def test_the_sets_are_read(clone: Path, tmp_path: Path) -> None:
    real_data.make(real_data.SETS["kitti"], clone, tmp_path)
    cloud = SemanticKITTI(tmp_path, [8]).read(0)
    assert cloud.labels is not None
    assert cloud.labels.tolist() == [8, 0, 255]
    rooms = tmp_path / "rooms"
    real_data.make(real_data.SETS["scannet"], clone, rooms)
    sets = FolderSets(root=str(rooms), classes=str(rooms / "classes.yaml"))
    found = sets.find("train")
    assert found is not None
    room = found.read(0)
    assert room.labels is not None
    assert room.features.tolist()[0] == pytest.approx([1, 0, 0.2])
    assert [sets.label_map.class_names[room.labels[0]], int(room.labels[1])] == ["table", 255]


def test_the_tables_of_the_page_follow_from_what_was_counted() -> None:
    found = json.loads(real_figures.FILE.read_text())
    page = real_figures.FILE.with_suffix(".md").read_text()
    for name, rows in real_figures.TABLES.items():
        assert rows(found) == found["tables"][name]
        assert real_figures.table(rows(found)) in page
    run = found["runs"]["streets_100_0"]["single"]
    counts = torch.tensor(list(run["counts"].values())).sum(0)  # [3, C]
    right, truth, said = counts.double()
    there = truth > 0
    iou = right[there] / (truth + said - right)[there]
    assert 100 * float(iou.mean()) == pytest.approx(run["miou_present"], abs=0.01)
