from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from pcnn.datasets.registration import PairDataset, ThreeDMatchSets
from pcnn.datasets.registration.gt_files import read_scene, scene_pairs, write_scene
from pcnn.datasets.registration.pairs import read_list
from pcnn.datasets.registration.threedmatch import TEST_SCENES
from pcnn.errors import FileError
from pcnn.metrics.registration import PairResult, information_rmse, protocol, summarize
from pcnn.registration.nearest import nearest_within
from pcnn.registration.transforms import inverse, transform_points
from tests.datasets.registration.scenes import fragments, write_benchmark
from tests.datasets.registration.training_sets import listed_pairs, write_predator
from tests.registration.poses import random_pose

HOTEL3 = "sun3d-hotel_umd-maryland_hotel3"


def test_the_data_set_reads_what_is_written(tmp_path: Path) -> None:
    clouds, poses = write_benchmark(tmp_path / "scene")
    data = ThreeDMatchSets(root=str(tmp_path)).find("test")
    assert (data.source_kind, data.benchmark, len(data.pairs)) == ("real", "threedmatch", 3)
    assert {(p.target, p.source) for p in data.pairs} == {(0, 1), (1, 2), (2, 3)}
    for pair in data.pairs:
        expected = inverse(poses[pair.target]) @ poses[pair.source]
        torch.testing.assert_close(pair.transform, expected, atol=1e-6, rtol=0)
        assert pair.information is not None
        assert float(pair.information[0, 0]) > 100
        cloud = data.cloud(pair.scene, pair.source)
        torch.testing.assert_close(cloud, clouds[pair.source].float())
    assert data.notes == ["1 scenes, 0 of the 8 of 3DMatch: scene"]


def test_scene_files_round_trip_an_empty_matrix(tmp_path: Path) -> None:
    clouds, poses = fragments(3)
    every = scene_pairs(clouds, poses, overlaps=(-1.0, 1.0))
    shares = {(pair.target, pair.source): pair.overlap or 0.0 for pair in every}
    assert 0.4 < shares[0, 1] < 0.6  # of the smaller cloud
    assert shares[0, 2] < 0.1
    pairs = scene_pairs(clouds, poses)
    object.__setattr__(pairs[1], "information", torch.zeros(6, 6, dtype=torch.float64))
    write_scene(tmp_path, pairs, 3)
    read = read_scene(tmp_path, "scene")
    assert [(p.target, p.source, p.index) for p in read] == [(0, 1, 0), (1, 2, 1)]
    assert read[1].information is not None
    assert not read[1].information.any()
    rmse = information_rmse(read[1].transform, read[1].transform, read[1].information)
    assert bool(rmse.isnan())


BROKEN = (
    ("gt.log", "0\t1\t2\n1 0 0 0\n", "whole number of pairs"),
    ("gt.log", "0 1 2\n\n1 0 0 0\n0 1 0 0\n\n0 0 1 a\n0 0 0 1\n", "line 6: want 4 finite"),
    ("gt.log", "\n0 1\n1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "gt.log: line 2: want i j n"),
    ("gt.log", "0 1 2\n2 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n", "pair 0 1.*no rotation"),
    ("gt.info", "0 7 9\n" + "0 0 0 0 0 0\n" * 6, "list different pairs"),
)


def test_broken_ground_truth_is_named(tmp_path: Path) -> None:
    pairs = scene_pairs(*fragments(2))
    for name, text, words in BROKEN:
        write_scene(tmp_path, pairs, 2)
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=words):
            read_scene(tmp_path, "scene")


def test_lists_of_both_publishers_say_the_same(tmp_path: Path) -> None:
    pose = random_pose(0).numpy()
    for content in listed_pairs(pose):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(content))
        (pair,) = read_list(tmp_path / "a.pkl")
        assert (pair.scene, pair.target, pair.source, pair.overlap) == ("s", 3, 7, 0.4)
        torch.testing.assert_close(pair.transform, torch.from_numpy(pose))
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([{"overlap": 1.0}]))
    with pytest.raises(FileError):
        read_list(tmp_path / "a.pkl")


def shared(data: PairDataset, place: int) -> float:
    """Share of a pair's source that the target has, under the true transform."""
    pair = data.pairs[place]
    source, target = (data.cloud(pair.scene, i).double() for i in (pair.source, pair.target))
    _, found = nearest_within(transform_points(pair.transform, source), target, 1e-3)
    return float((found >= 0).double().mean())


def test_predators_lists(tmp_path: Path) -> None:
    write_predator(tmp_path, ("a", "b", "c"))
    sets = ThreeDMatchSets(root=str(tmp_path))
    train, val = (sets.find(split) for split in ("train", "val"))
    assert [(p.scene, p.target, p.source) for p in train.pairs] == [
        (scene, i, i + 1) for scene in "ab" for i in range(3)
    ]
    assert {p.scene for p in val.pairs} == {"c"}
    assert train.source_kind == "real"
    assert all(shared(train, place) > 0.3 for place in range(6))
    limit = min(pair.overlap for pair in train.pairs)  # not more than it is: left out too
    assert len(ThreeDMatchSets(root=str(tmp_path), overlap=limit).find("train").pairs) < 6


def benchmark(data_root: Path, pair_list: str) -> list:
    folder = data_root / "threedmatch" / "metadata" / "benchmarks" / pair_list
    return [pair for scene in TEST_SCENES for pair in read_scene(folder / scene, scene)]


@pytest.mark.data
@pytest.mark.parametrize(
    ("pair_list", "pairs", "counted"), [("3DMatch", 1623, 1279), ("3DLoMatch", 1781, 1726)]
)
def test_official_counts(data_root: Path, pair_list: str, pairs: int, counted: int) -> None:
    listed = benchmark(data_root, pair_list)
    truth = torch.stack([pair.transform for pair in listed])
    rmse = information_rmse(truth, truth, torch.stack([pair.information for pair in listed]))
    results = [
        PairResult(p.scene, p.target, p.source, 0.0, 0.0, value, index=p.index)
        for p, value in zip(listed, rmse.tolist(), strict=True)
    ]
    perfect = summarize(results, protocol("predator", "threedmatch"))
    assert (perfect.pairs, perfect.counted, perfect.unjudged) == (pairs, counted, 0)
    assert perfect.rr == perfect.rr_pairs == 1


def share_near(source: torch.Tensor, target: torch.Tensor) -> float:
    _, found = nearest_within(source, target, 0.1)
    return float((found >= 0).double().mean())


@pytest.mark.data
def test_gt_log_maps_j_into_i_on_hotel3(data_root: Path) -> None:
    data = ThreeDMatchSets(root=str(data_root / "threedmatch"), scenes=[HOTEL3]).find("test")
    assert len(data.pairs) == 54
    before, after = [], []
    for pair in data.pairs:
        target, source = (data.cloud(HOTEL3, i) for i in (pair.target, pair.source))
        before.append(share_near(source, target))
        after.append(share_near(transform_points(pair.transform, source.double()), target))
    assert sum(before) / 54 == pytest.approx(0.193, abs=5e-3)
    assert sum(after) / 54 == pytest.approx(0.586, abs=5e-3)
