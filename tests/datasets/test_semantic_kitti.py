from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcnn.datasets.cloud_dataset import CloudDataset
from pcnn.datasets.labels import IGNORE
from pcnn.datasets.semantic_kitti import SemanticKITTI
from tests.datasets.clouds import scan, write_scan


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for frame in range(3):
        write_scan(tmp_path, 0, frame, 200 + frame)
    write_scan(tmp_path, 3, 5, 90)
    return tmp_path


def scans(root: Path, sequences: Sequence[int] = (0,), **options: Any) -> CloudDataset:
    return CloudDataset(SemanticKITTI(root, sequences), **{"voxel_size": 0.5, **options})


def test_reads_points_remission_and_train_ids(root: Path):
    data = scans(root, [0, 3])
    assert len(data) == 4
    cloud = data.read(3)
    assert (cloud.name, cloud.n_points) == ("03/000005", 90)
    np.testing.assert_array_equal(cloud.points, scan(90, 305)[:, :3])
    np.testing.assert_array_equal(cloud.features, scan(90, 305)[:, 3:])
    # road, car, moving car, vegetation, unlabelled, building, traffic sign
    assert cloud.labels[:7].tolist() == [8, 0, 0, 14, IGNORE, 12, 18]
    for key in ((0, 4), (0, -1), 5):
        with pytest.raises(IndexError):
            data[key]


def test_scans_without_label_are_named_and_left_out(root: Path, caplog: pytest.LogCaptureFixture):
    write_scan(root, 0, 7, 10, labelled=False)
    write_scan(root, 0, 9, 10, labelled=False)
    with caplog.at_level(logging.WARNING):
        data = scans(root)
    assert [data.name(i) for i in range(len(data))] == ["00/000000", "00/000001", "00/000002"]
    (line,) = caplog.messages
    assert "00/000007, 00/000009" in line


def test_missing_returns_take_their_labels_with_them(root: Path):
    path = root / "sequences/00/velodyne/000001.bin"
    whole = scans(root).read(1)
    points = np.fromfile(path, dtype="<f4").reshape(-1, 4)
    points[[1, 3], :3] = [[0, 0, 0], [np.nan, 1, 1]]
    points.tofile(path)
    cloud = scans(root).read(1)
    assert cloud.n_points_total == len(points)
    rows = np.delete(np.arange(len(points)), [1, 3])
    np.testing.assert_array_equal(cloud.labels, whole.labels[rows])
    np.testing.assert_array_equal(cloud.points, points[rows, :3])


@pytest.mark.data
def test_real_scans(data_root: Path, caplog: pytest.LogCaptureFixture):
    data = CloudDataset(SemanticKITTI(data_root / "kitti", [0]), voxel_size=0.05)
    assert [data.name(i) for i in range(len(data))] == ["00/000000"]
    assert "000001, 00/000005, 00/000094, 00/000095" in caplog.messages[0]
    words = np.fromfile(data.sources(0)[1], dtype=np.uint32)
    ids, counts = np.unique(words & 0xFFFF, return_counts=True)
    found = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    assert len(found) == 17
    expected = {40: 34228, 70: 27123, 48: 26360, 50: 18268, 10: 4234, 44: 3268}
    assert {raw: found[raw] for raw in expected} == expected
    cloud = data.read(0)
    assert cloud.n_points == 124668
    assert int((cloud.labels == 8).sum()) == found[40] + found.get(60, 0)
    assert int((cloud.labels == 14).sum()) == 27123
    # mean number of occupied cells in the 3^3 box, a property of real scans
    sample = data[0, 0]
    assert 20_000 < sample.geometry.rows < 124_668
    assert float(cloud.features.min()) >= 0.0
    assert float(cloud.features.max()) <= 1.0
