"""Clouds that `pcnn predict` cannot label, or labels with a word: the others are labelled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pcnn
from pcnn.datasets.readers.doubts import from_the_air, full_intensity, unit_doubt
from pcnn.experiment.predictor import Predictor
from pcnn.files.whole_file import whole_file
from tests.cli.test_predict import cloud, run, saved
from tests.datasets.point_files import rotating


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    return saved(tmp_path / "kitti.ckpt", "kitti", ["intensity"], crop=None)


def test_a_cloud_that_cannot_be_labelled_stops_no_other(kitti: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("a", "c"):
        cloud(60).tofile(folder / f"{name}.bin")
    np.save(folder / os.fsdecode(b"b\xff.npy"), cloud(60))
    huge = cloud(60).astype(np.float64)
    huge[:, 3] = 3e38
    np.save(folder / "b.npy", huge)
    (folder / "loop.ply").symlink_to(folder / "loop.ply")
    text = run(kitti, folder, "--out", out, "--view", code=1)
    assert f"not labelled: {folder / 'b.npy'}: " in text
    assert f"not labelled: {folder / 'loop.ply'}: " in text
    assert {path.name for path in out.glob("*.label")} >= {"a.label", "c.label"}
    assert "3 clouds labelled" in text


def test_a_network_that_gives_nan_labels_nothing_and_says_so(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "nan.ckpt", "kitti", ["intensity"], crop=None)
    content = torch.load(checkpoint, weights_only=True)
    weights = content["state_dict"]
    for name, value in weights.items():
        if value.is_floating_point():
            weights[name] = torch.full_like(value, 1e30)
    torch.save(content, checkpoint)
    for name in ("a", "b"):
        cloud(60).tofile(tmp_path / f"{name}.bin")
    text = run(checkpoint, tmp_path / "a.bin", tmp_path / "b.bin", "--out", tmp_path / "o", code=1)
    for name in ("a", "b"):
        assert f"not labelled: {tmp_path / f'{name}.bin'}: " in text


@pytest.mark.parametrize("top", [255, 65535])
def test_intensity_is_scaled_where_its_range_leaves_no_doubt(
    kitti: Path, tmp_path: Path, top: int
) -> None:
    points = cloud(300)
    points[0, 3] = 1.0
    scaled = points * np.float32([1, 1, 1, top])
    for name, values in (("unit", points), ("raw", scaled)):
        np.save(tmp_path / f"{name}.npy", values)
    unit = pcnn.predict(tmp_path / "unit.npy", kitti)
    raw = pcnn.predict(tmp_path / "raw.npy", kitti)
    np.testing.assert_allclose(raw.confidence, unit.confidence, atol=0.01)
    text = run(kitti, tmp_path / "raw.npy", "--out", tmp_path / "out", code=0)
    assert f"divided by {top}" in text
    assert [full_intensity(t) for t in (1.0, 100.0, 255.0, 300.0, 65535.0, 1e5)] == [
        None,
        None,
        255.0,
        None,
        65535.0,
        None,
    ]


def airborne(points: int = 40_000) -> np.ndarray:
    """[P, 3] of hills with trees, eight points a square metre."""
    rng = np.random.default_rng(0)
    width = np.sqrt(points / 8) * 2
    places = rng.uniform(0, [width, width, 0.1], (points, 3))
    places[:, 2] += np.sin(places[:, 0] / 20) * 5 + (rng.random(points) < 0.3) * rng.gamma(
        4, 3, points
    )
    return places


def test_clouds_seen_from_the_air_are_told(kitti: Path, tmp_path: Path) -> None:
    scan = rotating(40_000)[:, :3].astype(np.float64) * [4, 4, 1]
    assert from_the_air(airborne(), 40_000)
    assert not from_the_air(scan, len(scan))
    assert not from_the_air(airborne()[:500] / 20, 500)  # a room
    np.save(tmp_path / "a.npy", np.column_stack([airborne(), np.zeros(40_000)]))
    predictor = Predictor.load(kitti, torch.device("cpu"))
    assert pcnn.predict(tmp_path / "a.npy", kitti).doubts
    found: Any = predictor
    assert found.reading.at_sensor


def test_spacing_tells_of_units() -> None:
    rng = np.random.default_rng(0)
    ground = np.column_stack([rng.uniform(-5, 5, (2000, 2)), rng.normal(0, 0.1, 2000)])
    assert unit_doubt(ground, 0.1) is None
    assert unit_doubt(ground * 1000, 0.1) is not None  # millimetres
    assert unit_doubt(ground / 1000, 0.1) is not None  # kilometres
    assert unit_doubt(ground[:50] * 1000, 0.1) is None  # too few to tell


def test_a_device_is_written_through(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with whole_file(pipe) as file:
        file.write(b"abc")
    assert os.read(reader, 9) == b"abc"
    os.close(reader)
    assert pipe.is_fifo()
    (tmp_path / "null").symlink_to("/dev/null")
    with whole_file(tmp_path / "null") as file:
        file.write(b"abc")
    assert Path("/dev/null").is_char_device()
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="full"), whole_file(tmp_path / "full") as file:
        file.write(b"abc")
    assert (tmp_path / "full").is_symlink()
