"""Clouds read in ranges of rows are those read whole, and labels are what other readers read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import laspy
import numpy as np
import open3d
import pytest
import trimesh

from pcnn.datasets.prediction_files import write_labelled
from pcnn.datasets.readers.clouds import Reading, open_parts, read_points
from pcnn.errors import FileError
from pcnn.files.mapped import forget_pages
from pcnn.visualize.view.of_files import viewed_file
from tests.datasets.las_files import write_las
from tests.datasets.test_bin_files import nuscenes, room, rotating, with_bytes
from tests.datasets.test_point_files import pcd

N = 301
KITTI = ("x", "y", "z", "intensity")
COLOURED = ("x", "y", "z", "red", "green", "blue")


def structured(rows: np.ndarray, names: tuple[str, ...], kind: str = "<f4") -> np.ndarray:
    found = np.zeros(len(rows), [(name, kind) for name in names])
    for name, column in zip(names, rows.T, strict=True):
        found[name] = column
    return found


def late_colours() -> np.ndarray:
    """[N, 6] whose numbers of colours tell in the last part alone that they are bytes."""
    rows = with_bytes(room(N))
    rows[:-5, 3:] = rows[:-5, 3:] > 100
    rows[20] = 0  # a missing return
    return rows.astype(np.float32)


def ply(path: Path, order: str) -> None:
    sign = {"little": "<", "big": ">"}[order]
    rows = structured(rotating(N), ("x", "y", "z", "remission"), f"{sign}f4")
    lines = ["ply", f"format binary_{order}_endian 1.0", "element camera 2", "property uchar a"]
    lines += [f"element vertex {N}", *(f"property float {n}" for n in rows.dtype.names or ())]
    lines += ["element face 1", "property uchar a", "end_header", ""]
    path.write_bytes("\n".join(lines).encode() + b"\1\2" + rows.tobytes() + b"\3")


def fortran(path: Path) -> None:
    np.save(path, np.asfortranarray(rotating(N)))


FILES: dict[str, tuple[str, Callable[[Path], object], Reading]] = {
    "kitti": ("a.bin", lambda p: rotating(N).tofile(p), Reading()),
    "nuscenes": ("a.pcd.bin", lambda p: nuscenes(N).tofile(p), Reading(("ring", "intensity"))),
    "colours": ("a.bin", lambda p: late_colours().tofile(p), Reading(columns=COLOURED)),
    "named npy": ("a.npy", lambda p: np.save(p, late_colours()), Reading(columns=COLOURED)),
    "npy": ("a.npy", lambda p: np.save(p, rotating(N).astype(">f8")), Reading()),
    "fields": ("a.npy", lambda p: np.save(p, structured(rotating(N), KITTI)), Reading()),
    "fortran": ("a.npy", fortran, Reading()),
    "little ply": ("a.ply", lambda p: ply(p, "little"), Reading()),
    "big ply": ("a.ply", lambda p: ply(p, "big"), Reading()),
    "pcd": (
        "a.pcd",
        lambda p: pcd(p, " ".join(KITTI), "F F F F", structured(rotating(N), KITTI)),
        Reading(),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_ranges_of_rows_are_the_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write, reading = FILES[name]
    path = tmp_path / file
    write(path)
    whole = read_points(path, reading=reading)
    monkeypatch.setattr("pcnn.datasets.readers.parts.PART", 64)
    monkeypatch.setattr("pcnn.files.rows.ROWS", 50)
    cloud = open_parts(path, reading)
    assert cloud.points == N
    assert [len(part) for part in cloud][1:] == [64, 64, 64, N - 256]
    part = cloud.whole()
    assert part.channels.shape[1] >= 1
    np.testing.assert_array_equal(part.rows, whole.point_index)
    np.testing.assert_array_equal(part.places.astype(np.float32), whole.points)
    np.testing.assert_array_equal(part.channels, whole.features)


def test_files_that_change_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    rotating(N).tofile(path)
    cloud = open_parts(path, Reading())
    rotating(N - 1).tofile(path)
    with pytest.raises(FileError, match=r"a\.bin: it changed while it was read"):
        cloud.whole()


LABELS = np.random.default_rng(0).integers(0, 30, N)
CONFIDENCE = np.random.default_rng(1).integers(0, 256, N).astype(np.uint8)


def words(path: Path) -> np.ndarray:
    """Classes as SemanticKITTI's own reader takes them: the instance is in the upper half."""
    label = np.fromfile(path, dtype=np.uint32).reshape(-1)
    assert not (label >> 16).any()
    return label & 0xFFFF


#: Labels and confidence.
Read = tuple[np.ndarray, np.ndarray]


def with_trimesh(path: Path) -> Read:
    with path.open("rb") as file:
        raw = trimesh.exchange.ply.load_ply(file)["metadata"]["_ply_raw"]
    vertices = raw["vertex"]["data"]
    return vertices["label"], vertices["confidence"]


def with_open3d(path: Path) -> Read:
    point = open3d.t.io.read_point_cloud(path).point
    return point["label"].numpy()[:, 0], point["confidence"].numpy()[:, 0]


def with_laspy(path: Path) -> Read:
    las = laspy.read(path)
    return las.classification, las.confidence


def beside(path: Path) -> np.ndarray:
    return np.load(path.with_name("a_confidence.npy"))


READ_BACK: dict[str, tuple[str, list[Callable[[Path], Read]]]] = {
    "a.bin": (".label", [lambda path: (words(path), beside(path))]),
    "a.npy": ("_label.npy", [lambda path: (np.load(path), beside(path))]),
    "a.ply": (".ply", [with_trimesh, with_open3d]),
    "a.pcd": (".pcd", [with_open3d]),
    "a.las": (".las", [with_laspy]),
    "a.laz": (".laz", [with_laspy]),
}


@pytest.mark.parametrize("file", READ_BACK)
def test_other_readers_read_the_same_labels(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, (ending, readers) = tmp_path / file, READ_BACK[file]
    monkeypatch.setattr("pcnn.files.rows.ROWS", 50)
    if source.suffix in (".las", ".laz"):
        write_las(source, N)
    else:
        next(write for name, write, _ in FILES.values() if name == file)(source)
    files = write_labelled(tmp_path / "out" / "a", source, LABELS, confidence=CONFIDENCE)
    written, trust = files["labels"], files.get("confidence")
    assert written == tmp_path / "out" / f"a{ending}"
    assert sorted((tmp_path / "out").iterdir()) == sorted(files.values())
    for read in readers:
        labels, confidence = read(written)
        np.testing.assert_array_equal(np.asarray(labels), LABELS)
        np.testing.assert_allclose(np.asarray(confidence), CONFIDENCE / 255, rtol=1e-7)
    # a page finds it beside the labels or in their file, and takes a file of it
    for shown in (
        viewed_file(source, labels=written),
        viewed_file(source, confidence=trust or written),
    ):
        assert shown.rows is not None
        assert shown.confidence is not None
        np.testing.assert_allclose(shown.confidence, CONFIDENCE[shown.rows] / 255, rtol=1e-6)
    if trust is None:  # again: it replaces the property
        again = write_labelled(tmp_path / "again", written, LABELS, confidence=255 - CONFIDENCE)
        np.testing.assert_allclose(readers[-1](again["labels"])[1], 1 - CONFIDENCE / 255, atol=1e-6)
        bare = write_labelled(tmp_path / "bare", source, LABELS)
        assert viewed_file(bare["labels"]).confidence is None
    if source.suffix in (".ply", ".pcd"):  # all else is as it was
        before, after = read_points(source), read_points(written)
        np.testing.assert_array_equal(after.points, before.points)
        np.testing.assert_array_equal(after.features, before.features)
        # what breaks off leaves nothing
        monkeypatch.setattr("pcnn.files.rows.StoredRows.read", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_labelled(tmp_path / "none" / "a", source, LABELS)
        assert not list((tmp_path / "none").iterdir())


def test_forgotten_pages_keep_their_values(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "a", np.uint8, "w+", shape=(100_000,))
    mapped[:] = np.arange(100_000) % 251
    forget_pages(mapped, np.asarray(mapped)[5:], np.zeros(3), None)
    np.testing.assert_array_equal(mapped, np.arange(100_000) % 251)
    assert np.fromfile(tmp_path / "a", np.uint8).tolist() == mapped.tolist()
    own = np.memmap(tmp_path / "a", np.uint8, "c")
    own[:] = 7
    forget_pages(np.asarray(own)[3:])
    assert (own == 7).all()
