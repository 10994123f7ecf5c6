from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.bench.native.cloud import load_clouds


@pytest.fixture
def file(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    arrays = {"scan005": random.normal(size=(20, 3)), "room": random.normal(size=(5, 4))}
    path = tmp_path / "clouds.npz"
    np.savez(path, **arrays)
    return path


def test_the_grid_is_part_of_the_name_or_given(file: Path) -> None:
    (scan,) = load_clouds(f"{file}:scan005")
    assert (scan.name, scan.grid_size, len(scan.points)) == ("scan005", 0.05, 20)
    (room,) = load_clouds(f"{file}:room@0.125")
    assert (room.name, room.grid_size) == ("room", 0.125)
    assert room.points.dtype == torch.float32
    assert room.points.shape == (5, 3)
    assert [cloud.name for cloud in load_clouds(f"{file}@1")] == ["scan005", "room"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{file}:room", "no grid; give it as"),
        ("{file}:none@1", "no array none"),
        ("{file}:room@x", "must be a number"),
        ("{file}:room@0", "must be positive"),
        ("{file}:flat@1", r"floats \[P, 3 or more\]"),
        ("{text}@1", "not an .npz file"),
    ],
)
def test_what_is_no_cloud_is_named(file: Path, word: str, message: str) -> None:
    text = file.with_name("notes.txt")
    text.write_text("nothing")
    if "flat" in word:
        np.savez(file, flat=np.zeros(7))
    with pytest.raises(ValueError, match=message):
        load_clouds(word.format(file=file, text=text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.npz"):
        load_clouds(f"{tmp_path}/none.npz:room002")
