from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.label_files import read_label_file, write_label_file
from pcnn.datasets.readers.points import label_source, read_labels, read_points
from pcnn.errors import FileError
from pcnn.files.whole_file import whole_file
from tests.datasets.clouds import scan


def test_bin(tmp_path: Path):
    points = scan(33)
    points.tofile(tmp_path / "a.bin")
    cloud = read_points(tmp_path / "a.bin")
    np.testing.assert_array_equal(cloud.points, points[:, :3])
    np.testing.assert_array_equal(cloud.features, points[:, 3:])
    assert cloud.labels is None
    assert cloud.point_index is not None
    assert cloud.point_index.tolist() == list(range(33))


@pytest.mark.parametrize("columns", [3, 4, 6])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_npy(tmp_path: Path, columns: int, dtype: str):
    values = (np.arange(7 * columns).reshape(7, columns) - 5).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    cloud = read_points(tmp_path / "a.npy")
    np.testing.assert_array_equal(cloud.points, values[:, :3])
    np.testing.assert_array_equal(cloud.features, values[:, 3:])


@pytest.mark.parametrize("suffix", ["bin", "npy"])
def test_empty_cloud(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"
    if suffix == "bin":
        path.touch()
    else:
        np.save(path, np.empty((0, 4)))
    assert read_points(path).n_points == 0


def save(path: Path, values: np.ndarray) -> None:
    values.tofile(path) if path.suffix == ".bin" else np.save(path, values)


@pytest.mark.parametrize("suffix", ["bin", "npy"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, 2, 3])
def test_missing_returns_are_left_out(tmp_path: Path, suffix: str, value: float, column: int):
    points, path = scan(9), tmp_path / f"a.{suffix}"
    points[4, column] = value
    points[7, :3] = 0
    save(path, points)
    cloud = read_points(path)
    assert cloud.point_index is not None
    assert cloud.point_index.tolist() == [0, 1, 2, 3, 5, 6, 8]
    assert (cloud.n_points, cloud.n_points_total) == (7, 9)
    np.testing.assert_array_equal(cloud.features, points[cloud.point_index.numpy(), 3:])
    with pytest.raises(FileError, match=rf"a\.{suffix}: 2 of 9 points .* point 4; .*--strict"):
        read_points(path, reading=Reading(strict=True))
    save(path, np.full((5, 4), np.nan, dtype=np.float32))
    with pytest.raises(FileError, match="all 5 points are missing returns"):
        read_points(path)


def test_an_array_with_fields(tmp_path: Path):
    points = np.zeros(3, dtype=[(n, "f4") for n in ("X", "Y", "Z", "Intensity")])
    points["X"], points["Intensity"] = [1, 2, 3], 0.5
    np.save(tmp_path / "a.npy", points)
    cloud = read_points(tmp_path / "a.npy")
    assert cloud.points[:, 0].tolist() == [1, 2, 3]
    assert cloud.features.tolist() == [[0.5]] * 3


def test_other_units_become_metres(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([[5e9, 1000, 2000], [5e9 + 1500, 0, 0]]))
    cloud = read_points(tmp_path / "a.npy", reading=Reading(scale=0.001, centred=True))
    np.testing.assert_allclose((cloud.points[1] - cloud.points[0]).tolist(), [1.5, -1, -2])
    np.testing.assert_allclose(cloud.points[0].numpy() + cloud.origin, [5e6, 1, 2])


@pytest.mark.parametrize("suffix", ["npy", "ply", "pcd"])
def test_coordinates_that_float32_would_move(tmp_path: Path, suffix: str):
    path = tmp_path / f"a.{suffix}"

    def write(x: float) -> None:
        rows = np.array([[x, 1.0, 2.0], [x + 0.05, 1.0, 2.0]])
        if suffix == "npy":
            np.save(path, rows)
            return
        head = {
            "ply": "ply\nformat binary_little_endian 1.0\nelement vertex 2\nproperty double x\n"
            "property double y\nproperty double z\nend_header\n",
            "pcd": "VERSION 0.7\nFIELDS x y z\nSIZE 8 8 8\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 2\n"
            "HEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 2\nDATA binary\n",
        }[suffix]
        path.write_bytes(head.encode() + rows.astype("<f8").tobytes())

    write(1234.56)
    assert read_points(path).points[1, 0] == np.float32(1234.61)
    write(5_412_345.67)  # a northing: 5 cm apart would become nothing or half a metre
    with pytest.raises(ValueError, match=rf"a\.{suffix}: coordinates of up to .* subtract one"):
        read_points(path)
    write(1e300)
    with pytest.raises(ValueError, match=rf"a\.{suffix}"):
        read_points(path)


def test_truncated_bin(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(scan(5).tobytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.bin: 77 bytes are not a whole number of 16-byte"):
        read_points(path)


def test_truncated_npy(tmp_path: Path):
    path = tmp_path / "a.npy"
    np.save(path, scan(5))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a\.npy: not a whole \.npy file"):
        read_points(path)


@pytest.mark.parametrize("values", [np.zeros((3, 2)), np.zeros(3), np.zeros((3, 3), dtype="U1")])
def test_npy_of_another_shape(tmp_path: Path, values: np.ndarray):
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(ValueError, match=r"a\.npy: points must be numbers \[N, 3 or more\]"):
        read_points(tmp_path / "a.npy")


def test_pickles_are_not_loaded(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy"):
        read_points(tmp_path / "a.npy")


def test_other_paths(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"none\.bin"):
        read_points(tmp_path / "none.bin")
    (tmp_path / "a.xyz").touch()
    with pytest.raises(ValueError, match=r"a\.xyz: a cloud ends in \.bin, .*\.ply, \.las, \.laz"):
        read_points(tmp_path / "a.xyz")


def test_label_words_hold_class_and_instance(tmp_path: Path):
    words = np.array([40, 10 | 7 << 16, 0xFFFFFFFF], dtype=np.uint32)
    words.tofile(tmp_path / "a.label")
    assert read_labels(tmp_path / "a.label", 3).tolist() == [40, 10, -1]
    assert read_label_file(tmp_path / "a.label", 3).tolist() == words.tolist()


def test_npy_labels(tmp_path: Path):
    np.save(tmp_path / "a_label.npy", np.array([1, -1, 3], dtype=np.int16))
    assert read_labels(tmp_path / "a_label.npy", 3).tolist() == [1, -1, 3]
    with pytest.raises(ValueError, match=r"a_label\.npy: labels must be 4 integers"):
        read_labels(tmp_path / "a_label.npy", 4)
    np.save(tmp_path / "a_label.npy", np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="integers, found float64"):
        read_labels(tmp_path / "a_label.npy", 2)


def test_mis_sized_label_file(tmp_path: Path):
    path = tmp_path / "a.label"
    np.zeros(3, dtype=np.uint32).tofile(path)
    with pytest.raises(ValueError, match=r"a\.label: 3 labels for a scan of 4 points"):
        read_labels(path, 4)
    path.write_bytes(b"12345")
    with pytest.raises(ValueError, match=r"a\.label: 5 bytes are no whole number"):
        read_labels(path, 1)


def test_which_file_labels_a_cloud(tmp_path: Path):
    cloud = tmp_path / "a.b.npy"
    assert label_source(cloud) is None
    (tmp_path / "a.b.label").touch()
    assert label_source(cloud) == tmp_path / "a.b.label"
    (tmp_path / "a.b_label.npy").touch()
    with pytest.raises(ValueError, match="keep one"):
        label_source(cloud)


def test_prediction_file(tmp_path: Path):
    path = tmp_path / "sequences" / "08" / "predictions" / "000000.label"
    write_label_file(path, np.array([10, 0, 259]))
    assert read_label_file(path, 3).tolist() == [10, 0, 259]
    with pytest.raises(ValueError, match="fit 16 bits"):
        write_label_file(path, np.array([-1]))
    assert [p.name for p in path.parent.iterdir()] == ["000000.label"]


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("old")

    def write() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
