from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pcnn.datasets.registration import (
    IndoorPairs,
    KITTIOdometry,
    KITTISets,
)
from pcnn.datasets.registration.kitti_pairs import pairs_between
from pcnn.registration.nearest import nearest_within
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.training_sets import write_drive, write_predator


def shared(data: IndoorPairs | KITTIOdometry, place: int) -> float:
    """Share of a pair's source that the target has, under the true transform."""
    pair = data.pairs[place]
    source, target = (data.cloud(pair.scene, i).double() for i in (pair.source, pair.target))
    _, found = nearest_within(transform_points(pair.transform, source), target, 1e-3)
    return float((found >= 0).double().mean())


def test_predators_lists(tmp_path: Path) -> None:
    write_predator(tmp_path, ("a", "b", "c"))
    train, val = (IndoorPairs(tmp_path, split) for split in ("train", "val"))
    assert [(p.scene, p.target, p.source) for p in train.pairs] == [
        (scene, i, i + 1) for scene in "ab" for i in range(3)
    ]
    assert {p.scene for p in val.pairs} == {"c"}
    assert train.source_kind == "real"
    assert all(shared(train, place) > 0.3 for place in range(6))
    limit = min(pair.overlap for pair in train.pairs)  # not more than it is: left out too
    assert len(IndoorPairs(tmp_path, "train", limit).pairs) < 6


def test_kitti_trains_on_its_own_sequences(tmp_path: Path) -> None:
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
    with pytest.raises(FileNotFoundError, match=r"01\.txt"):  # never fewer than asked for
        KITTISets(**options).find("train")


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
    sets = KITTISets(**options, ground_truth="odometry")
    data = sets.find("train")
    assert [(p.source, p.target) for p in data.pairs] == found
    assert shared(data, 1) > 0.9
    with pytest.raises(ValueError, match="legacy"):
        KITTISets(**options).find("train")


@pytest.mark.data
def test_published_pickles_serve_all_splits(data_root: Path) -> None:
    root = data_root / "kitti"
    sets = KITTISets(root=str(root), metadata=str(root / "geotransformer"))
    assert [len(sets.find(split).pairs) for split in ("train", "val", "test")] == [1358, 180, 555]
    alone = KITTISets(root=str(root), metadata=str(root / "geotransformer" / "test.pkl"))
    assert len(alone.find("test").pairs) == 555
