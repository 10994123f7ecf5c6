"""Inputs of networks: channels by name, points alone, metres; clouds that are doubted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import pcnn
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.readers.clouds import read_points
from tests.cli.test_predict import cloud, labels, run, saved
from tests.datasets.clouds import records_of, write_vertices
from tests.datasets.point_files import nuscenes


def test_nuscenes_is_no_kitti(kitti: Path, tmp_path: Path) -> None:
    points, out = nuscenes(800), tmp_path / "out"
    points.tofile(tmp_path / "a.bin")
    assert "nuscenes" in run(kitti, tmp_path / "a.bin", "--out", out, code=1)
    run(kitti, tmp_path / "a.bin", "--columns", "nuscenes", "--out", out, code=0)
    scaled = ("--columns", "x,y,z,remission,ring", "--intensity-max", 255)
    run(kitti, tmp_path / "a.bin", "--out", tmp_path / "named", *scaled, code=0)
    assert labels(out, "a").shape == (800,)
    np.testing.assert_array_equal(labels(tmp_path / "named", "a"), labels(out, "a"))
    refused = run(kitti, tmp_path / "a.bin", "--columns", "x,y", code=2)
    assert "columns: x,y" in refused


@pytest.mark.parametrize("dataset", ["kitti", "folder"])
def test_missing_returns_keep_their_place(dataset: str, tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "best.ckpt", dataset, ["intensity"], crop=None)
    whole = cloud(300)
    holes = np.zeros(400, dtype=bool)
    holes[[0, 7, 399]] = True
    holes[50:147] = True
    points = np.full((400, 4), np.nan, dtype=np.float32)
    points[~holes] = whole
    points[100:147] = 0
    (tmp_path / "in").mkdir()
    whole.tofile(tmp_path / "in" / "whole.bin")
    points.tofile(tmp_path / "in" / "holes.bin")
    fields = np.zeros(400, dtype=[(n, "f4") for n in ("x", "y", "z", "intensity")])
    for name, column in zip(fields.dtype.names or (), points.T, strict=True):
        fields[name] = column
    write_vertices(tmp_path / "in" / "ply.ply", fields)
    out = tmp_path / "out"
    text = run(checkpoint, tmp_path / "in", "--out", out, code=0)
    assert "200 of 1,100 points are missing returns (NaN, or zeros) and written as unlab" in text
    found = labels(out, "holes")
    np.testing.assert_array_equal(found[~holes], labels(out, "whole"))
    assert set(found[holes].tolist()) == {0 if dataset == "kitti" else IGNORE}
    np.testing.assert_array_equal(records_of(out / "ply.ply")["label"], found)
    assert read_points(out / "holes.ply").n_points == 300
    tiled = ("--out", tmp_path / "tiled", "--tile", 1000)
    run(checkpoint, tmp_path / "in" / "holes.bin", *tiled, code=0)


def test_units_that_look_wrong_are_said_once(kitti: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ground = np.column_stack([rng.uniform(-5, 5, (2000, 2)), rng.normal(0, 0.1, 2000)])
    thick = np.column_stack([ground, rng.random(2000)]).astype(np.float32)
    (tmp_path / "in").mkdir()
    for name in "ab":
        (thick * np.float32([1000, 1000, 1000, 100])).tofile(tmp_path / "in" / f"{name}.bin")
    text = run(kitti, tmp_path / "in", "--out", tmp_path / "out", code=0)
    assert text.count("--scale") == 1
    assert text.count("--intensity-max") == 1
    options = ("--scale", 0.001, "--intensity-max", 100)
    text = run(kitti, tmp_path / "in", "--out", tmp_path / "scaled", *options, code=0)
    assert "--scale" not in text
    coloured = records_of(tmp_path / "scaled" / "a.ply")
    np.testing.assert_allclose(coloured["x"], thick[:, 0] * 1000, rtol=1e-5)
    thick.tofile(tmp_path / "c.bin")
    run(kitti, tmp_path / "c.bin", "--out", tmp_path / "metres", code=0)
    same = labels(tmp_path / "metres", "c") == labels(tmp_path / "scaled", "a")
    assert same.mean() > 0.99


@pytest.mark.parametrize("top", [255, 65535])
def test_intensity_is_scaled_where_its_range_leaves_no_doubt(kitti: Path, top: int) -> None:
    points = cloud(300)
    points[0, 3] = 1.0
    unit, raw, odd = (
        pcnn.predict(points[:, :3], kitti, channels={"intensity": points[:, 3] * number})
        for number in (1, top, 100)
    )
    np.testing.assert_allclose(raw.confidence, unit.confidence, atol=0.01)
    assert unit.doubts == ()
    assert f"divided by {top}" in raw.doubts[0]
    assert "--intensity-max" in odd.doubts[0]


def test_a_network_that_gives_nan_labels_nothing_and_says_so(kitti: Path, tmp_path: Path) -> None:
    content = torch.load(kitti, weights_only=True)
    weights = content["state_dict"]
    for name, value in weights.items():
        if value.is_floating_point():
            weights[name] = torch.full_like(value, 1e30)
    torch.save(content, kitti)
    cloud(60).tofile(tmp_path / "a.bin")
    text = run(kitti, tmp_path / "a.bin", "--out", tmp_path / "o", code=1)
    assert f"not labelled: {tmp_path / 'a.bin'}: " in text
