"""Channels are found by their names, whatever the format calls them and in any case."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.ply import write_ply
from pcnn.datasets.readers.points import read_points
from pcnn.datasets.readers.table import find_name, meant
from pcnn.errors import FileError
from tests.datasets.las_files import write_las

COLOURS = ("red", "green", "blue")
RGB = np.array([[255, 51, 0], [1, 2, 3], [0, 0, 0]], dtype=np.uint8)


def pcd(path: Path, fields: str, types: str, rows: np.ndarray, kind: str = "binary") -> Path:
    sizes = " ".join(str(rows.dtype[name].itemsize) for name in rows.dtype.names or ())
    head = (
        f"VERSION 0.7\nFIELDS {fields}\nSIZE {sizes}\nTYPE {types}\nWIDTH {len(rows)}\nHEIGHT 1\n"
    )
    body = rows.tobytes()
    if kind == "ascii":
        body = "\n".join(" ".join(repr(v) for v in row) for row in rows.tolist()).encode()
    path.write_bytes(f"{head}POINTS {len(rows)}\nDATA {kind}\n".encode() + body)
    return path


@pytest.mark.parametrize("kind", ["binary", "ascii"])
@pytest.mark.parametrize("field", ["rgb", "RGBA"])
@pytest.mark.parametrize("number", ["f4", "u4"])
@pytest.mark.parametrize("alpha", [0, 128])
def test_packed_colours_of_pcd_files(
    tmp_path: Path, kind: str, field: str, number: str, alpha: int
):
    words = np.array([alpha << 24 | int(r) << 16 | int(g) << 8 | int(b) for r, g, b in RGB])
    rows = np.zeros(3, dtype=[("x", "f4"), ("y", "f4"), ("z", "f4"), ("c", number), ("i", "f4")])
    rows["x"], rows["i"] = [1, 2, 3], [0.5, 0.25, 0.0]
    rows["c"] = words.astype("<u4").view(f"<{number}")
    types = f"F F F {number[0].upper()} F"
    path = pcd(tmp_path / "a.pcd", f"x y z {field} Intensity", types, rows, kind)
    cloud = read_points(path)
    np.testing.assert_array_equal(cloud.features[:, 0], rows["i"])
    np.testing.assert_allclose(cloud.features[:, 1:], RGB / 255, rtol=1e-6)


def test_any_format_gives_intensity_by_name(tmp_path: Path):
    write_las(tmp_path / "a.las", 4)
    kinds = [("red", "u1"), ("X", "f8"), ("Y", "f8"), ("Z", "f8"), ("scalar_Intensity", "f4")]
    vertices = np.zeros(4, dtype=[*kinds, ("nx", "f4")])
    vertices["X"], vertices["scalar_Intensity"] = 1, np.arange(4) * 655 / 65535
    write_ply(tmp_path / "b.ply", vertices)
    rows = np.zeros(4, dtype=[(n, "f4") for n in ("i", "x", "y", "z")])
    rows["x"], rows["i"] = 1, vertices["scalar_Intensity"]
    pcd(tmp_path / "c.pcd", "Reflectivity X Y Z", "F F F F", rows)
    scan = np.column_stack([np.ones((4, 3)), rows["i"]]).astype("<f4")
    scan.tofile(tmp_path / "d.bin")
    np.save(tmp_path / "e.npy", scan)
    for path in sorted(tmp_path.iterdir()):
        cloud = read_points(path, reading=Reading(("intensity",), centred=True))
        np.testing.assert_allclose(cloud.features[:, 0], rows["i"], rtol=1e-6, err_msg=path.name)


def test_a_name_in_the_file_comes_before_what_means_the_same():
    names = ("x", "Reflectivity", "intensity", "R", "NIR")
    assert find_name("intensity", names) == "intensity"
    assert find_name("reflectivity", names) == "Reflectivity"
    assert find_name("remission", names) == "intensity"
    assert find_name("red", names) == "R"
    assert find_name("nir", names) == "NIR"
    assert find_name("green", names) is None
    assert (meant("Remission"), meant("Diffuse_Red"), meant("NIR")) == ("intensity", "red", "nir")


def test_a_channel_that_is_not_there(tmp_path: Path):
    write_las(tmp_path / "a.las", 4, point_format=6)
    named = Reading(("intensity", *COLOURS), centred=True)
    with pytest.raises(FileError, match=r"a\.las: no channel 'red'; the file has X, Y, Z, in"):
        read_points(tmp_path / "a.las", reading=named)
    fill = {"Red": 0.5, "green": 0, "b": 1, "intensity": 9}
    filled = Reading(("intensity", *COLOURS), centred=True, fill=fill)
    cloud = read_points(tmp_path / "a.las", reading=filled)
    np.testing.assert_allclose(cloud.features[2], [2 * 655 / 65535, 0.5, 0, 1], rtol=1e-6)
    with pytest.raises(ValueError, match="fill: red must be a finite number"):
        Reading(fill={"red": float("nan")})
    with pytest.raises(ValueError, match="scale must be a number above 0"):
        Reading(scale=0)


def test_the_error_names_file_and_rule(tmp_path: Path):
    path = tmp_path / "a.ply"
    path.write_bytes(b"no ply")
    with pytest.raises(FileError) as error:
        read_points(path)
    assert error.value.path == path
    assert str(error.value) == f"{path}: {error.value.rule}"
