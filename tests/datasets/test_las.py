"""LAS and LAZ files: values, damages that cost one file, and labelled copies."""

from __future__ import annotations

from pathlib import Path

import laspy
import numpy as np
import pytest

from pcnn.datasets.readers import las
from pcnn.datasets.readers.clouds import Reading, open_parts, read_points
from tests.datasets.las_files import CODES, places, write_las
from tests.datasets.point_files import refused


@pytest.mark.parametrize(("name", "kind"), [("a.laz", 2), ("A.LAS", 6), ("a.laz", 7)])
def test_las_files_keep_their_millimetres(
    tmp_path: Path, name: str, kind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, centred = tmp_path / name, Reading(centred=True)
    written = write_las(path, 40, kind)
    cloud = read_points(path, reading=centred)
    np.testing.assert_array_equal(np.array(cloud.origin) % 1, 0)
    np.testing.assert_allclose(cloud.points.double().numpy() + cloud.origin, places(40), atol=5e-6)
    assert cloud.labels is not None
    assert cloud.labels.tolist() == np.resize(CODES, 40).tolist()
    colours = [1.0, 0.2, 0.0] if kind in (2, 7) else []
    np.testing.assert_allclose(cloud.features[3], [3 * 655 / 65535, *colours], rtol=1e-6)
    monkeypatch.setattr("pcnn.datasets.readers.clouds.PART", 16)
    parted = open_parts(path, Reading(("return_number", "Intensity"), intensity_max=6550.0))
    assert [len(part) for part in parted] == [16, 16, 8]
    part = parted.whole()
    np.testing.assert_array_equal(part.places, np.asarray(written.xyz))
    np.testing.assert_allclose(part.channels[10], [1.0, 1.0], rtol=1e-6)
    if colours:  # of eight bits, as many programs write them
        written.red, written.green, written.blue = (np.full(40, v, "u2") for v in (255, 51, 0))
        written.write(path)
        cloud = read_points(path, reading=centred)
        np.testing.assert_allclose(cloud.features[0, 1:], [1.0, 0.2, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("kind", "full"), [("u1", 255), ("f4", 1), ("u2", 65535)])
def test_further_columns_may_be_colours(kind: str, full: int, tmp_path: Path) -> None:
    written = write_las(tmp_path / "a.las", 40, 6)
    for name, share in (("red", 1), ("green", 0.2), ("blue", 0)):
        written.add_extra_dim(laspy.ExtraBytesParams(name, kind))
        written[name] = np.full(40, share * full, kind)
    written.write(tmp_path / "a.las")
    cloud = read_points(tmp_path / "a.las", reading=Reading(centred=True))
    np.testing.assert_allclose(cloud.features[0, 1:], [1.0, 0.2, 0.0], rtol=1e-6)


@pytest.mark.parametrize("program", ["import os; os.abort()", "while True: pass", "print('{')"])
def test_a_library_that_breaks_costs_one_file(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_las(tmp_path / "a.las")
    with monkeypatch.context() as patched:
        patched.setattr(las, "_CHILD", tmp_path / "child.py")
        patched.setattr(las, "_SECONDS", 1)
        (tmp_path / "child.py").write_text(program)
        refused(tmp_path / "a.las")
    assert read_points(tmp_path / "a.las", reading=Reading(centred=True)).n_points == 40


def test_the_library_is_that_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_las(tmp_path / "a.las")
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "laspy.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path / "first")
    refused(tmp_path / "a.las")


@pytest.mark.parametrize(("name", "kind"), [("a.las", 1), ("a.laz", 7)])
def test_a_labelled_copy_keeps_all_else(tmp_path: Path, name: str, kind: int) -> None:
    written = write_las(tmp_path / name, 40, kind)
    before = laspy.read(tmp_path / name)
    before.header.vlrs.append(laspy.VLR("copc", 1, "an octree that a copy has not", bytes(160)))
    before.write(tmp_path / name)
    for top in (31, 200):  # classes of 5 bits, and of 8
        labels = np.arange(40) % 5 * (top // 4)
        las.write_las_labels(tmp_path / "out" / name, tmp_path / name, labels)
        after = laspy.read(tmp_path / "out" / name)
        assert not [record for record in after.header.vlrs if record.user_id == "copc"]
        np.testing.assert_array_equal(after.classification, labels)
        for dimension in written.point_format.dimension_names:
            if dimension in ("classification", "raw_classification"):
                continue
            if dimension == "scan_angle_rank" and after.point_format.id >= 6:
                degrees = np.asarray(after["scan_angle"]) * 0.006
                np.testing.assert_allclose(degrees, written[dimension], atol=0.003)
                continue
            np.testing.assert_array_equal(after[dimension], written[dimension])
        np.testing.assert_array_equal(after.header.offsets, written.header.offsets)
        assert after.point_format.id == (kind if labels.max() <= 31 else max(kind, 6))
        assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    for wrong in (np.zeros(39), np.full(40, 256), np.full(40, -1)):
        with pytest.raises(ValueError, match=r"[ab]\.la"):
            las.write_las_labels(tmp_path / "b.las", tmp_path / name, wrong.astype(np.int64))
        assert not (tmp_path / "b.las").exists()
