from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.registration.kitti_pairs import (
    EXCLUDED,
    LEGACY_CALIBRATION,
    SPLITS,
    KITTIOdometry,
    odometry_transform,
    pairs_of,
    read_calibration,
    read_poses,
    refined,
)
from pcnn.datasets.registration.pairs import read_kitti_list
from pcnn.errors import FileError
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.open3d_tools import icp
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.scenes import world
from tests.datasets.registration.training_sets import write_drive
from tests.registration.poses import shifted, turned

LISTS = {"train": 1358, "val": 180, "test": 555}
# of the lines "sequence first second" of a list
SHA = {"train": "104eed9b0f1c45b7", "val": "944370edc889942f", "test": "a13e51e8e6bb5739"}


def line(steps: list[float]) -> np.ndarray:
    positions = np.zeros((len(steps) + 1, 3))
    positions[1:, 2] = np.cumsum(steps)
    return positions


def test_the_partner_is_the_last_frame_within_ten_metres() -> None:
    # frames 3 m apart: 12 m at frame 4 is too far, 9 m at frame 3 is the partner
    assert pairs_of(line([3.0] * 9)) == [(0, 3), (4, 7)]
    # exactly 10 m is not more than 10 m
    assert pairs_of(line([5.0] * 6)) == [(0, 2), (3, 5)]
    # the window ends after a hundred frames
    assert pairs_of(line([0.1] * 99 + [5.0, 5.0, 5.0]))[0][0] > 0
    assert pairs_of(line([0.0] * 50)) == []
    assert pairs_of(line([30.0, 1.0, 10.0])) == [(1, 2)]  # nothing pairs with itself


def test_fixed_truth_of_a_drive(tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    made = write_drive(tmp_path, 7, points=9000)
    options = {"split": "val", "ground_truth": "fixed", "sequences": [7]}
    (made_now,), (pair,) = (KITTIOdometry(tmp_path, **options).pairs for _ in range(2))
    assert torch.equal(made_now.transform, pair.transform)  # kept below the root
    assert (pair.scene, pair.source, pair.target) == ("07", 0, 3)
    truth = inverse(made["places"][3]) @ made["places"][0]
    assert float(rotation_error(pair.transform, truth)) < 0.01
    assert float(translation_error(pair.transform, truth)) < 0.005
    exact = KITTIOdometry(tmp_path, "val", "odometry", sequences=[7])
    torch.testing.assert_close(exact.pairs[0].transform, truth, atol=1e-9, rtol=0)
    path = tmp_path / "icp_fixed" / "7_0_3.npy"
    legacy = KITTIOdometry(tmp_path, "val", sequences=[7])
    assert legacy.kept(7, 0, 3) == tmp_path / "icp" / "7_0_3.npy"  # FCGF's own files
    path.write_bytes(b"torn")
    with pytest.raises(FileError) as error:
        KITTIOdometry(tmp_path, **options)
    assert error.value.path == path


def test_legacy_composes_on_the_other_side() -> None:
    target = world(points=9000) * 4
    off = turned((0, 0, 1), 0.3) @ shifted(0.05, 0.02, 0)
    odometry = shifted(8, 3, 0) @ turned((0, 0, 1), 40)
    source = transform_points(inverse(odometry) @ inverse(off), target)
    fixed = refined(source, target, odometry, "fixed")
    legacy = refined(source, target, odometry, "legacy")
    torch.testing.assert_close(fixed, off @ odometry, atol=2e-3, rtol=0)
    torch.testing.assert_close(legacy, odometry @ off, atol=2e-3, rtol=0)
    assert float(translation_error(legacy, fixed)) > 0.01


def rule_pairs(root: Path, split: str) -> list[tuple[int, int, int]]:
    found = []
    for sequence in SPLITS[split]:
        positions = read_poses(root / "poses" / f"{sequence:02d}.txt")[:, :3, 3].numpy()
        found += [(sequence, first, second) for first, second in pairs_of(positions)]
    return [pair for pair in found if pair not in EXCLUDED]


@pytest.mark.data
@pytest.mark.parametrize("split", LISTS)
def test_rule_gives_the_published_lists_in_order(data_root: Path, split: str) -> None:
    found = rule_pairs(data_root / "kitti", split)
    assert len(found) == LISTS[split]
    listed = read_kitti_list(data_root / "kitti" / "geotransformer" / f"{split}.pkl")
    assert found == [(int(p.scene), p.source, p.target) for p in listed]
    text = "".join(f"{s} {a} {b}\n" for s, a, b in found)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == SHA[split]


@pytest.mark.data
def test_published_truth_is_the_legacy_composition(data_root: Path) -> None:
    root = data_root / "kitti"
    data = KITTIOdometry(root, metadata=root / "geotransformer" / "test.pkl")
    assert len(data.pairs) == 555
    assert data.ground_truth == "legacy"
    poses = {s: read_poses(root / "poses" / f"{s:02d}.txt") for s in SPLITS["test"]}
    angles, gaps = [], []
    for pair in data.pairs:
        camera = poses[int(pair.scene)]
        odometry = odometry_transform(LEGACY_CALIBRATION, camera[pair.target], camera[pair.source])
        step = inverse(odometry) @ pair.transform  # what ICP found, as the published code has it
        right = step @ odometry
        angles.append(float(rotation_error(pair.transform, right)))
        gaps.append(float(translation_error(pair.transform, right)))
    assert np.mean(angles) == pytest.approx(0.070, abs=2e-3)
    assert np.mean(gaps) == pytest.approx(0.0303, abs=5e-4)
    passed = np.mean((np.array(angles) < 1) & (np.array(gaps) < 0.2))
    assert passed == pytest.approx(0.973, abs=1e-3)


@pytest.mark.data
def test_calibrated_odometry_of_a_real_pair(data_root: Path) -> None:
    root = data_root / "kitti"
    calibration = read_calibration(root / "sequences" / "00" / "calib.txt")
    camera = read_poses(root / "poses" / "00.txt")
    transform = odometry_transform(calibration, camera[94], camera[95])
    pytest.importorskip("open3d")
    data = KITTIOdometry(root, metadata=root / "geotransformer" / "test.pkl")
    source, target = (data.cloud("00", frame) for frame in (95, 94))
    found = icp(source[::8], target, transform, 0.5, 15)
    assert float(rotation_error(transform, found)) < 0.2
    assert float(translation_error(transform, found)) < 0.05
