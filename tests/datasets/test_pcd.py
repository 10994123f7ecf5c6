from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from pcnn.datasets.readers.pcd import read_pcd
from pcnn.datasets.readers.points import read_points

POINTS = np.array([[1, 2, 3, 0.5], [4, 5, 6, 0.25], [-7, 8, 9, 0.125]], dtype="<f4")
HEADER = """# .PCD v0.7
VERSION 0.7
FIELDS x y z intensity
SIZE 4 4 4 4
TYPE F F F F
COUNT 1 1 1 1
WIDTH 3
HEIGHT 1
VIEWPOINT 0 0 0 1 0 0 0
POINTS 3
DATA {}
"""


def written(path: Path, kind: str, body: bytes, header: str = HEADER) -> Path:
    path.write_bytes(header.format(kind).encode() + body)
    return path


def literals(data: bytes) -> bytes:
    """LZF without any compression: runs of at most 32 bytes as they are."""
    parts = [data[at : at + 32] for at in range(0, len(data), 32)]
    return b"".join(bytes([len(part) - 1]) + part for part in parts)


def bodies() -> dict[str, bytes]:
    planes = np.ascontiguousarray(POINTS.T).tobytes()
    packed = literals(planes)
    return {
        "ascii": b"\n".join(b" ".join(b"%r" % float(v) for v in row) for row in POINTS),
        "binary": POINTS.tobytes(),
        "binary_compressed": struct.pack("<II", len(packed), len(planes)) + packed,
    }


@pytest.mark.parametrize("kind", ["ascii", "binary", "binary_compressed"])
def test_points_and_intensity(kind: str, tmp_path: Path) -> None:
    cloud = read_points(written(tmp_path / "a.pcd", kind, bodies()[kind]))
    np.testing.assert_array_equal(cloud.points.numpy(), POINTS[:, :3])
    np.testing.assert_array_equal(cloud.features.numpy(), POINTS[:, 3:])


def test_back_references_are_followed(tmp_path: Path) -> None:
    # 48 zero bytes: one as it is, then a reference of 47 to the byte before
    packed = bytes([0, 0, (7 << 5) | 0, 47 - 9, 0])
    body = struct.pack("<II", len(packed), 48) + packed
    points = read_pcd(written(tmp_path / "a.pcd", "binary_compressed", body))
    assert points["x"].tolist() == [0, 0, 0]


def test_padding_fields_are_passed_over(tmp_path: Path) -> None:
    header = HEADER.replace("x y z intensity", "x y z _").replace("1 1 1 1", "1 1 1 4")
    header = header.replace("SIZE 4 4 4 4", "SIZE 4 4 4 1").replace("F F F F", "F F F U")
    cloud = read_points(written(tmp_path / "a.pcd", "binary", POINTS.tobytes(), header))
    np.testing.assert_array_equal(cloud.points.numpy(), POINTS[:, :3])
    assert cloud.features.shape == (3, 0)


@pytest.mark.parametrize(
    ("header", "kind", "body", "words"),
    [
        ("no pcd at all", "", b"", "no DATA line"),
        (HEADER, "binary", POINTS.tobytes()[:-1], "truncated"),
        (HEADER, "ascii", b"1 2 3\n", "3 points of 4 numbers"),
        (HEADER, "ascii", b"1 2 3 a\n1 2 3 4\n1 2 3 4\n", "intensity"),
        (HEADER, "zip", b"", "DATA must be"),
        (HEADER.replace("FIELDS x", "FIELDS w"), "binary", POINTS.tobytes(), "x, y and z"),
        (HEADER.replace("SIZE 4", "SIZE 3"), "binary", POINTS.tobytes(), "unusable"),
        (HEADER, "binary_compressed", struct.pack("<II", 2, 48) + b"\xff\x00", "torn"),
    ],
)
def test_broken_files_are_named(
    header: str, kind: str, body: bytes, words: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "bad.pcd", kind, body, header)
    with pytest.raises(ValueError, match=f"bad.pcd.*{words}"):
        read_points(path)
