from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.registration import KITTISets
from pcnn.datasets.registration.kitti_pairs import (
    EXCLUDED,
    SPLITS,
    pairs_between,
    pairs_of,
    poses_file,
    read_poses,
)
from pcnn.errors import FileError
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.training_sets import write_drive

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


def test_odometry_of_a_drive(tmp_path: Path) -> None:
    places = {s: write_drive(tmp_path, s, 9)["places"] for s in (0, 3, 6, 8)}
    options = {"root": str(tmp_path), "ground_truth": "odometry"}
    sets = KITTISets(**options, train_sequences=[0, 3], val_sequences=[6], sequences=[8])
    found = {split: sets.find(split) for split in ("train", "val", "test")}
    pairs = {split: [(p.scene, p.source, p.target) for p in d.pairs] for split, d in found.items()}
    assert pairs["train"] == [(s, i, i + 3) for s in ("00", "03") for i in (0, 4)]
    assert pairs["val"] == [("06", 0, 3), ("06", 4, 7)]
    assert pairs["test"] == [("08", 0, 3), ("08", 4, 7)]
    truth = inverse(places[3][7]) @ places[3][4]
    torch.testing.assert_close(found["train"].pairs[3].transform, truth, atol=1e-9, rtol=0)
    target, source = (found["train"].cloud("03", frame).double() for frame in (7, 4))
    moved = transform_points(truth, source)  # row by row the same places
    assert float((moved - target).abs().max()) < 1e-4
    with pytest.raises(FileNotFoundError, match=r"01\.txt"):  # never fewer than asked for
        KITTISets(**options).find("train")
    with pytest.raises(ValueError, match="sequences"):
        KITTISets(**options, sequences=[0]).find("test")


def test_all_pairs_of_some_distance(tmp_path: Path) -> None:
    places = write_drive(tmp_path, 0, 6)["places"]
    positions = places[:, :3, 3].numpy()
    found = pairs_between(positions, 2.0, 6.5)
    apart = torch.cdist(places[:, :3, 3], places[:, :3, 3])
    assert found == [
        (i, j) for i in range(6) for j in range(i + 1, 6) if 2.0 <= float(apart[i, j]) <= 6.5
    ]
    assert pairs_between(positions, 0.0, 99.0, window=2) == [(i, i + 1) for i in range(5)]
    options = {"root": str(tmp_path), "train_sequences": [0], "distances": [2.0, 6.5]}
    data = KITTISets(**options, ground_truth="odometry").find("train")
    assert [(p.source, p.target) for p in data.pairs] == found
    with pytest.raises(ValueError, match="legacy"):
        KITTISets(**options).find("train")


def test_the_legacy_truth_is_that_of_the_lists(tmp_path: Path) -> None:
    pose = np.eye(4)
    pose[0, 3] = 9.0
    listed = [{"seq_id": s, "frame0": 5, "frame1": 2, "transform": pose} for s in (8, 9)]
    sets = KITTISets(root=str(tmp_path), sequences=[9])
    with pytest.raises(FileNotFoundError, match=r"test\.pkl"):
        sets.find("test")
    (tmp_path / "test.pkl").write_bytes(pickle.dumps(listed))
    data = sets.find("test")
    (pair,) = data.pairs
    assert (pair.scene, pair.target, pair.source, data.ground_truth) == ("09", 5, 2, "legacy")
    torch.testing.assert_close(pair.transform, torch.from_numpy(pose))
    assert data.notes == ["ground truth legacy", "sequences [9] of [8, 9, 10] alone"]
    for change in ({"transform": 2 * pose}, {"frame0": 0.5}, {"seq_id": -1}):
        (tmp_path / "test.pkl").write_bytes(pickle.dumps([listed[0] | change]))
        with pytest.raises(FileError) as error:
            sets.find("test")
        assert error.value.path == tmp_path / "test.pkl"


@pytest.mark.data
@pytest.mark.parametrize("split", LISTS)
def test_rule_gives_the_published_lists_in_order(data_root: Path, split: str) -> None:
    root = data_root / "kitti"
    published = KITTISets(root=str(root), split=split, metadata=str(root / "geotransformer"))
    listed = published.find("test").pairs
    assert len(listed) == LISTS[split]
    found = []
    for sequence in SPLITS[split]:
        positions = read_poses(poses_file(root, sequence))[:, :3, 3].numpy()
        found += [(sequence, *pair) for pair in pairs_of(positions)]
    found = [pair for pair in found if pair not in EXCLUDED]
    assert found == [(int(p.scene), p.source, p.target) for p in listed]
    text = "".join(f"{s} {a} {b}\n" for s, a, b in found)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == SHA[split]
