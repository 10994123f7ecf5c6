"""Clouds of one's own come back in their own format."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest

from tests.cli.test_predict import run, saved
from tests.datasets.clouds import records_of, write_vertices
from tests.datasets.las_files import CORNER, places, write_las

CLASSES = {
    "names": ["ground", "tree", "house"],
    "map": {2: "ground", 5: "tree", 6: "house"},
    "ignore": [1],
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    own = {"classes": CLASSES, "class_names": None, "channels": None, "crop": None}
    return saved(tmp_path / "best.ckpt", "folder", further=4, **own)  # intensity, colour


def test_las_files_come_back_with_classes(checkpoint: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "tiles", tmp_path / "out"
    before = write_las(source / "north" / "a.las")
    write_las(source / "b.LAZ")
    (source / "c.laz").write_bytes((source / "b.LAZ").read_bytes()[:-9])
    text = run(checkpoint, source, "--out", out, "--crop", 10, code=1)
    assert "2 clouds labelled" in text
    assert f"not labelled: {source / 'c.laz'}: not a whole LAS file" in text
    after = laspy.read(out / "north" / "a.las")
    np.testing.assert_array_equal(after.xyz, before.xyz)
    np.testing.assert_array_equal(after.intensity, before.intensity)
    found = np.asarray(after.classification)
    assert set(found) <= {1, 2, 5, 6}
    near = np.hypot(*(places(40) - CORNER - 20)[:, :2].T) < 9
    assert 0 < near.sum() < 40
    assert not (found[near] == 1).any()  # points beyond the crop alone have no class
    coloured = records_of(out / "north" / "a.ply")
    for axis, name in enumerate("xyz"):
        np.testing.assert_allclose(coloured[name], places(40)[:, axis], atol=1e-5)
    written = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    assert written == ["b.laz", "b.ply", "north/a.las", "north/a.ply"]


def test_ply_files_come_back_with_their_properties(checkpoint: Path, tmp_path: Path) -> None:
    kinds = [(n, "f8") for n in "xyz"] + [("intensity", "f4"), ("scan", "u2")]
    kinds += [(name, "u1") for name in ("red", "green", "blue")]
    vertices = np.zeros(30, dtype=kinds)
    for axis, name in enumerate("xyz"):
        vertices[name] = places(30)[:, axis]
    vertices["scan"] = np.arange(30) + 1000
    vertices["red"] = 77
    write_vertices(tmp_path / "in" / "a.ply", vertices)
    run(checkpoint, tmp_path / "in" / "a.ply", "--out", tmp_path / "out")
    found = records_of(tmp_path / "out" / "a.ply")
    for name, _ in kinds:
        np.testing.assert_array_equal(found[name], vertices[name])
    assert set(found["label"]) <= {2, 5, 6}
    coloured = records_of(tmp_path / "out" / "a_classes.ply")
    np.testing.assert_allclose(coloured["x"], vertices["x"], atol=1e-5)
    assert not (coloured["red"] == 77).any()


def test_large_clouds_square_by_square(checkpoint: Path, tmp_path: Path) -> None:
    write_las(tmp_path / "in" / "a.las", 400)

    def classes(name: str, *options: object) -> np.ndarray:
        run(checkpoint, tmp_path / "in" / "a.las", "--out", tmp_path / name, *options, "--no-ply")
        return np.asarray(laspy.read(tmp_path / name / "a.las").classification)

    whole = classes("whole")
    np.testing.assert_array_equal(classes("one", "--tile", 1e6), whole)
    several = classes("several", "--tile", 15, "--margin", 3)
    assert set(several) <= {2, 5, 6}  # every point is of some square
    a = tmp_path / "in" / "a.las"
    assert "cannot be used together" in run(checkpoint, a, "--tile", 9, "--crop", 5, code=2)
    assert "must not exceed --tile 1" in run(checkpoint, a, "--tile", 1, "--margin", 5, code=2)


def test_results_never_replace_a_cloud(checkpoint: Path, tmp_path: Path) -> None:
    tiles = tmp_path / "tiles"
    write_las(tiles / "a.las")
    write_las(tiles / "deep" / "b.las")
    write_las(tmp_path / "c.las")
    before = (tiles / "a.las").read_bytes()
    for words in ((tiles,), (tiles / "a.las",), (tmp_path / "c.las", tiles / "a.las")):
        text = run(checkpoint, *words, "--out", tiles, code=2)
        assert "might replace one; give another folder as --out" in text
    assert (tiles / "a.las").read_bytes() == before
    assert len(list(tiles.iterdir())) == 2
    # a folder below the clouds is the results' own, one above them holds no cloud
    for out in (tmp_path, tiles / "out"):
        assert "2 clouds labelled" in run(checkpoint, tiles, "--out", out, "--no-ply")


def test_labels_apart_are_no_clouds(checkpoint: Path, tmp_path: Path) -> None:
    for index in range(2):
        path = tmp_path / "in" / "points" / f"{index}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.random.default_rng(index).uniform(0, 4, (40, 7)))
        (tmp_path / "in" / "labels").mkdir(exist_ok=True)
        np.save(tmp_path / "in" / "labels" / f"{index}.npy", np.zeros(40, np.int64))
    columns = ("--columns", "x,y,z,intensity,red,green,blue")
    text = run(checkpoint, tmp_path / "in", "--out", tmp_path / "out", "--no-ply", *columns)
    assert "2 clouds labelled" in text
