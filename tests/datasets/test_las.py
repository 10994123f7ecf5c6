from __future__ import annotations

import sys
from pathlib import Path

import laspy
import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from pcnn.datasets.readers.channels import Reading
from pcnn.datasets.readers.las import read_las, write_las_labels
from pcnn.datasets.readers.points import read_points
from tests.datasets.las_files import CODES, CORNER, places, write_las
from tests.forking import require_fork

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
    assert cloud.labels is not None
    assert cloud.labels.tolist() == np.resize(CODES, 40).tolist()
    colours = [1.0, 0.2, 0.0] if point_format in (2, 7) else []
    np.testing.assert_allclose(cloud.features[3], [3 * 655 / 65535, *colours], rtol=1e-6)


def test_the_origin_is_not_moved_by_a_stray_point(tmp_path: Path):
    las = write_las(tmp_path / "a.las")
    las.z[0] = 9000.0
    las.write(tmp_path / "a.las")
    assert abs(read_points(tmp_path / "a.las", reading=CENTRED).origin[2] - CORNER[2]) < 20


def test_without_a_centre_such_a_cloud_is_refused(tmp_path: Path):
    write_las(tmp_path / "a.las")
    with pytest.raises(ValueError, match=r"a\.las: coordinates of up to 5\.412e\+06 m"):
        read_points(tmp_path / "a.las")


def test_a_centre_moves_others_only_where_they_need_it(tmp_path: Path):
    np.save(tmp_path / "near.npy", places(9) - CORNER)
    np.save(tmp_path / "far.npy", places(9))
    near = read_points(tmp_path / "near.npy", reading=CENTRED)
    far = read_points(tmp_path / "far.npy", reading=CENTRED)
    assert near.origin == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(far.points.double().numpy() + far.origin, places(9), atol=5e-6)


def test_channels_by_name(tmp_path: Path):
    write_las(tmp_path / "a.las")
    chosen = Reading(("return_number", "intensity", "green"), intensity_max=6550.0, centred=True)
    cloud = read_points(tmp_path / "a.las", reading=chosen)
    np.testing.assert_allclose(cloud.features[10], [1.0, 1.0, 0.2], rtol=1e-6)
    with pytest.raises(ValueError, match=r"a\.las: no channel 'nir'; the file has X, Y, Z"):
        read_points(tmp_path / "a.las", reading=Reading(("nir",)))
    with pytest.raises(ValueError, match="differ"):
        Reading(("red", "red"))
    with pytest.raises(ValueError, match="intensity_max"):
        Reading(intensity_max=0.0)


def test_colours_of_eight_bits(tmp_path: Path):
    las = write_las(tmp_path / "a.las")
    las.red, las.green, las.blue = (np.full(40, v, dtype=np.uint16) for v in (255, 51, 0))
    las.write(tmp_path / "a.las")
    cloud = read_points(tmp_path / "a.las", reading=CENTRED)
    np.testing.assert_allclose(cloud.features[0, 1:], [1.0, 0.2, 0.0], rtol=1e-6)


@pytest.mark.parametrize("name", ["a.las", "a.laz"])
def test_no_points(tmp_path: Path, name: str):
    write_las(tmp_path / name, 0)
    cloud = read_points(tmp_path / name, reading=CENTRED)
    assert (cloud.points.shape, cloud.features.shape) == ((0, 3), (0, 4))


@pytest.mark.parametrize(("name", "point_format"), [("a.las", 1), ("a.laz", 7)])
@pytest.mark.parametrize("keep", [0, 100, -3, "a point less"])
def test_a_torn_file(tmp_path: Path, name: str, point_format: int, keep: int | str):
    las = write_las(tmp_path / name, 40, point_format)
    data = (tmp_path / name).read_bytes()
    cut = -las.point_format.size if isinstance(keep, str) else keep
    (tmp_path / name).write_bytes(data[:cut])
    with pytest.raises(ValueError, match=r"a\.la[sz]: (not a whole LAS file|truncated)"):
        read_points(tmp_path / name, reading=CENTRED)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_las(tmp_path / "a.las")
    monkeypatch.setitem(sys.modules, "lazrs", None)
    read_las(tmp_path / "a.las")
    with pytest.raises(
        ImportError, match=r"a\.laz: LAZ files need lazrs: pip install 'pcnn3d\[las\]'"
    ):
        read_las(tmp_path / "a.laz")
    monkeypatch.setitem(sys.modules, "laspy", None)
    with pytest.raises(
        ImportError, match=r"a\.las: LAS files need laspy: pip install 'pcnn3d\[las\]'"
    ):
        read_las(tmp_path / "a.las")


@pytest.mark.parametrize(("name", "point_format"), [("a.las", 1), ("a.laz", 3), ("a.laz", 7)])
@pytest.mark.parametrize("top", [31, 200])
def test_a_labelled_copy(tmp_path: Path, name: str, point_format: int, top: int):
    before = write_las(tmp_path / name, 40, point_format)
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


@pytest.mark.parametrize("labels", [np.zeros(39), np.full(40, 256), np.full(40, -1)])
def test_labels_that_do_not_fit(tmp_path: Path, labels: np.ndarray):
    write_las(tmp_path / "a.las")
    with pytest.raises(ValueError, match=r"b\.las"):
        write_las_labels(tmp_path / "b.las", tmp_path / "a.las", labels.astype(np.int64))
    assert not (tmp_path / "b.las").exists()


class Tiles(Dataset):
    """Compressed clouds, read where the loader says."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return read_points(self.path, reading=CENTRED).n_points


def test_worker_processes_read_after_their_parent_did(tmp_path: Path):
    require_fork()
    before = write_las(tmp_path / "a.las", 60_000)  # chunks enough for several threads
    write_las_labels(tmp_path / "a.laz", tmp_path / "a.las", np.asarray(before.classification))
    tiles = Tiles(tmp_path / "a.laz")
    assert tiles[0] == 60_000
    loader = DataLoader(tiles, num_workers=1, timeout=30)
    assert [int(n) for n in loader] == [60_000, 60_000]
