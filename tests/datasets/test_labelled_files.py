"""Labels in files: where they are found, and that other readers read what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import laspy
import numpy as np
import open3d
import pytest
import trimesh

from pcnn.datasets.label_files import label_source, read_labels, write_labelled
from pcnn.datasets.readers.clouds import read_points
from pcnn.errors import FileError
from tests.datasets.las_files import write_las
from tests.datasets.point_files import N, pcd_bytes, ply_bytes, rotating, saved, table

LABELS = np.random.default_rng(0).integers(0, 30, N)
CONFIDENCE = np.random.default_rng(1).integers(0, 256, N).astype(np.uint8)
Labelled = tuple[Any, Any]


def with_trimesh(path: Path) -> Labelled:
    with path.open("rb") as file:
        raw = trimesh.exchange.ply.load_ply(file)["metadata"]["_ply_raw"]
    return raw["vertex"]["data"]["label"], raw["vertex"]["data"]["confidence"]


def with_open3d(path: Path) -> Labelled:
    point = open3d.t.io.read_point_cloud(path).point
    return point["label"].numpy()[:, 0], point["confidence"].numpy()[:, 0]


def with_laspy(path: Path) -> Labelled:
    found = laspy.read(path)
    return found.classification, np.load(path.with_name("a_confidence.npy"))


def with_numpy(path: Path) -> Labelled:
    labels = np.load(path) if path.suffix == ".npy" else np.fromfile(path, np.uint32)
    return labels, np.load(path.with_name("a_confidence.npy"))


READ_BACK: dict[str, tuple[str, list[Callable[[Path], Labelled]]]] = {
    "a.bin": (".label", [with_numpy]),
    "a.npy": ("_label.npy", [with_numpy]),
    "a.ply": (".ply", [with_trimesh, with_open3d]),
    "a.pcd": ("_label.npy", [with_numpy]),
    "a.las": (".las", [with_laspy]),
    "a.laz": (".laz", [with_laspy]),
}


@pytest.mark.parametrize("file", READ_BACK)
def test_other_readers_read_the_same_labels(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, (ending, readers) = tmp_path / file, READ_BACK[file]
    monkeypatch.setattr("pcnn.datasets.label_files.PART", 50)
    if source.suffix in (".las", ".laz"):
        write_las(source, N)
    else:
        contents = {".bin": rotating(), ".npy": rotating(), ".pcd": pcd_bytes("binary", table())}
        saved(source, contents.get(source.suffix, ply_bytes("binary_little_endian", table())))
    files = write_labelled(tmp_path / "out" / "a", source, LABELS, confidence=CONFIDENCE)
    written, trust = files["labels"], files.get("confidence")
    assert written == tmp_path / "out" / f"a{ending}"
    assert sorted((tmp_path / "out").iterdir()) == sorted(files.values())
    for read in readers:
        labels, confidence = read(written)
        np.testing.assert_array_equal(np.asarray(labels), LABELS)
        np.testing.assert_allclose(np.asarray(confidence), CONFIDENCE / 255, rtol=1e-7)
    if trust is None:  # again: it replaces the property
        again = write_labelled(tmp_path / "again", written, LABELS, confidence=255 - CONFIDENCE)
        np.testing.assert_allclose(readers[-1](again["labels"])[1], 1 - CONFIDENCE / 255, atol=1e-6)
    if source.suffix == ".ply":  # all else is as it was
        before, after = read_points(source), read_points(written)
        np.testing.assert_array_equal(after.points, before.points)
        np.testing.assert_array_equal(after.features, before.features)
        # what breaks off leaves nothing
        monkeypatch.setattr("pcnn.datasets.label_files.np.empty", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_labelled(tmp_path / "none" / "a", source, LABELS)
        assert not (tmp_path / "none").exists()


def test_labels_beside_a_cloud(tmp_path: Path) -> None:
    words = np.array([40, 10 | 7 << 16, 0xFFFFFFFF], dtype=np.uint32)
    words.tofile(tmp_path / "a.label")
    assert read_labels(tmp_path / "a.label", 3).tolist() == [40, 10, -1]
    path = tmp_path / "a_label.npy"
    np.save(path, np.array([1, -1, 3], dtype=np.int16))
    assert read_labels(path, 3).tolist() == [1, -1, 3]
    for wrong in (path, tmp_path / "a.label"):
        with pytest.raises(FileError) as error:
            read_labels(wrong, 4)
        assert error.value.path == wrong
    np.save(path, np.array([1.0, 2.0]))
    (tmp_path / "a.label").write_bytes(b"12345")
    for wrong, count in ((path, 2), (tmp_path / "a.label", 1)):
        with pytest.raises(FileError):
            read_labels(wrong, count)
    cloud = saved(tmp_path / "a.b.npy", rotating())
    assert label_source(cloud) is None
    (tmp_path / "a.b.label").touch()
    assert label_source(cloud) == tmp_path / "a.b.label"
    (tmp_path / "a.b_label.npy").touch()
    with pytest.raises(FileError):
        label_source(cloud)
