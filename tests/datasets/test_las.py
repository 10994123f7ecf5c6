from __future__ import annotations

import sys
from pathlib import Path

import laspy
import numpy as np
import pytest
from pcnn.decoder import las_program

from pcnn.datasets.readers.clouds import Reading, read_points
from pcnn.datasets.readers.las import read_las, write_las_labels
from tests.datasets.las_files import CODES, CORNER, places, write_las

CENTRED = Reading(centred=True)


@pytest.mark.parametrize(
    ("name", "point_format"), [("a.las", 1), ("a.laz", 2), ("A.LAS", 6), ("a.laz", 7)]
)
def test_a_cloud_of_a_map_keeps_its_millimetres(tmp_path: Path, name: str, point_format: int):
    write_las(tmp_path / name, 40, point_format)
    cloud = read_points(tmp_path / name, reading=CENTRED)
    assert cloud.points.abs().max() < 30
    np.testing.assert_array_equal(np.array(cloud.origin) % 1, 0)
    np.testing.assert_allclose(cloud.points.double().numpy() + cloud.origin, places(40), atol=5e-6)
    assert cloud.labels.tolist() == np.resize(CODES, 40).tolist()
    colours = [1.0, 0.2, 0.0] if point_format in (2, 7) else []
    np.testing.assert_allclose(cloud.features[3], [3 * 655 / 65535, *colours], rtol=1e-6)
    write_las(tmp_path / name, 0, point_format)
    cloud = read_points(tmp_path / name, reading=CENTRED)
    assert (cloud.points.shape, cloud.features.shape) == ((0, 3), (0, 1 + len(colours)))


def test_the_origin_is_moved_where_it_must_be(tmp_path: Path):
    las = write_las(tmp_path / "a.las")
    with pytest.raises(ValueError, match=r"a\.las: coordinates of up to 5\.412e\+06 m"):
        read_points(tmp_path / "a.las")
    las.z[0] = 9000.0  # a stray point
    las.write(tmp_path / "a.las")
    assert abs(read_points(tmp_path / "a.las", reading=CENTRED).origin[2] - CORNER[2]) < 20
    # other formats are moved where they need it alone
    np.save(tmp_path / "near.npy", places(9) - CORNER)
    np.save(tmp_path / "far.npy", places(9))
    near, far = (read_points(tmp_path / f"{n}.npy", reading=CENTRED) for n in ("near", "far"))
    assert near.origin == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(far.points.double().numpy() + far.origin, places(9), atol=5e-6)


def test_channels_by_name(tmp_path: Path):
    write_las(tmp_path / "a.las")
    chosen = Reading(("return_number", "intensity", "green"), intensity_max=6550.0, centred=True)
    cloud = read_points(tmp_path / "a.las", reading=chosen)
    np.testing.assert_allclose(cloud.features[10], [1.0, 1.0, 0.2], rtol=1e-6)
    with pytest.raises(ValueError, match=r"a\.las: no channel 'nir'; the file has X, Y, Z"):
        read_points(tmp_path / "a.las", reading=Reading(("nir",)))


def test_colours_of_eight_bits(tmp_path: Path):
    las = write_las(tmp_path / "a.las")
    las.red, las.green, las.blue = (np.full(40, v, dtype=np.uint16) for v in (255, 51, 0))
    las.write(tmp_path / "a.las")
    cloud = read_points(tmp_path / "a.las", reading=CENTRED)
    np.testing.assert_allclose(cloud.features[0, 1:], [1.0, 0.2, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("name", "point_format"), [("a.las", 1), ("a.laz", 7)])
def test_a_torn_file(tmp_path: Path, name: str, point_format: int):
    las = write_las(tmp_path / name, 40, point_format)
    data = (tmp_path / name).read_bytes()
    for cut in (0, 100, -3, -las.point_format.size):
        (tmp_path / name).write_bytes(data[:cut])
        with pytest.raises(ValueError, match=r"a\.la[sz]: (not a whole LAS file|truncated)"):
            read_points(tmp_path / name, reading=CENTRED)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_las(tmp_path / "a.las")
    read_las(tmp_path / "a.las")
    for module, name, kind in (("lazrs", "a.laz", "LAZ"), ("laspy", "a.las", "LAS")):
        monkeypatch.setitem(sys.modules, module, None)
        words = rf"{name}: {kind} files need {module}: pip install 'pcnn3d\[las\]'"
        with pytest.raises(ImportError, match=words):
            read_las(tmp_path / name)


@pytest.mark.parametrize(("name", "point_format"), [("a.las", 1), ("a.laz", 3), ("a.laz", 7)])
def test_a_labelled_copy(tmp_path: Path, name: str, point_format: int):
    before = write_las(tmp_path / name, 40, point_format)
    for top in (31, 200):  # classes of 5 bits, and of 8
        labels = np.arange(40) % 5 * (top // 4)
        write_las_labels(tmp_path / "out" / name, tmp_path / name, labels)
        after = laspy.read(tmp_path / "out" / name)
        np.testing.assert_array_equal(after.classification, labels)
        for dimension in before.point_format.dimension_names:
            if dimension in ("classification", "raw_classification"):
                continue
            if dimension == "scan_angle_rank" and after.point_format.id >= 6:
                degrees = np.asarray(after["scan_angle"]) * 0.006
                np.testing.assert_allclose(degrees, before[dimension], atol=0.003)
                continue
            np.testing.assert_array_equal(after[dimension], before[dimension])
        np.testing.assert_array_equal(after.header.offsets, before.header.offsets)
        extended = {1: 6, 3: 7}.get(point_format, point_format)
        assert after.point_format.id == (point_format if labels.max() <= 31 else extended)
        with laspy.open(tmp_path / "out" / name) as file:
            assert file.header.are_points_compressed == name.endswith("z")
        assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


@pytest.mark.parametrize("most", [20, 200])
def test_threads_write_the_same_copy(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_las(tmp_path / "a.laz", 300, 3)
    (np.arange(600) % (most + 1)).astype(np.uint8).tofile(tmp_path / "classes")
    request = {
        "path": str(tmp_path / "a.laz"),
        "classes": str(tmp_path / "classes"),
        "packed": False,
        "most": most,
        "confidence": True,
    }
    monkeypatch.setattr(las_program, "_WRITTEN", 37)
    for name, many in (("one", 1 << 22), ("threads", 0)):
        monkeypatch.setattr(las_program, "_MANY", many)
        las_program._classify({**request, "target": str(tmp_path / name)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "threads").read_bytes()


def test_memory_of_a_labelled_copy_does_not_follow_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    points = 2_000_000  # 68 MB, and 72 MB in the format with classes of 8 bits
    with laspy.open(tmp_path / "a.las", "w", header=laspy.LasHeader(point_format=3)) as file:
        file.write_points(laspy.ScaleAwarePointRecord.zeros(points, header=file.header))
    monkeypatch.setattr("pcnn.datasets.readers.las._PART_MEMORY", 96 << 20)
    bytes_ = np.full(points, 200, np.uint8)
    write_las_labels(tmp_path / "b.las", tmp_path / "a.las", bytes_, bytes_)
    with laspy.open(tmp_path / "b.las") as file:
        file.seek(points - 1)
        last = file.read_points(1)
    assert last.classification[0] == 200
    assert last.confidence[0] == pytest.approx(200 / 255)


def test_labels_that_do_not_fit(tmp_path: Path):
    write_las(tmp_path / "a.las")
    for labels in (np.zeros(39), np.full(40, 256), np.full(40, -1)):
        with pytest.raises(ValueError, match=r"b\.las"):
            write_las_labels(tmp_path / "b.las", tmp_path / "a.las", labels.astype(np.int64))
        assert not (tmp_path / "b.las").exists()
