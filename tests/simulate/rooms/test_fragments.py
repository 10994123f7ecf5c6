"""Fragments lie in the files of 3DMatch, and their ground truth aligns them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.readers.doubts import nearest_distances
from pcnn.datasets.registration.gt_files import read_gt_overlap, read_scene
from pcnn.datasets.registration.pair_lists import read_indoor_list
from pcnn.files.simulated import is_simulated
from pcnn.simulate.rooms import threedmatch
from pcnn.simulate.rooms.threedmatch import THREEDMATCH, Job, Scene, do_job, simulate_fragments
from tests.simulate.densities import neighbours_per_voxel


def scene(root: Path) -> Path:
    (folder,) = (root / "data" / "test").iterdir()
    return folder


def cloud(folder: Path, number: int) -> np.ndarray:
    return torch.load(folder / f"cloud_bin_{number}.pth", weights_only=False)


def pose(folder: Path, number: int) -> np.ndarray:
    lines = (folder / f"cloud_bin_{number}.info.txt").read_text().splitlines()
    assert lines[0].split() == [folder.name, "seq-01", str(50 * number), str(50 * number + 49)]
    return np.array([line.split() for line in lines[1:]], float)


def share_near(target: np.ndarray, source: np.ndarray, radius: float = 0.05) -> float:
    near = [np.linalg.norm(target - p, axis=1).min() < radius for p in source[::37]]
    return float(np.mean(near))


def test_folders_and_clouds(fragments: Path) -> None:
    assert {p.name for p in fragments.iterdir()} == {"data", "metadata", "SIMULATED.json"}
    folder = scene(fragments)
    assert is_simulated(folder)
    names = [f"cloud_bin_{n}{end}" for n in range(2) for end in (".info.txt", ".pth")]
    assert sorted(p.name for p in folder.iterdir()) == names
    for number in range(2):
        points = cloud(folder, number)
        assert points.dtype == np.float64
        assert points.shape[1] == 3
        # the box of the published volumes, in the frame of the first camera
        assert (np.abs(points[:, :2]) <= 1.5).all()
        assert ((points[:, 2] >= 0.5) & (points[:, 2] <= 3.5)).all()
        cells = np.floor((points - [-1.5, -1.5, 0.5]) / 0.025)
        assert len(np.unique(cells, axis=0)) == len(points)
        turn = pose(folder, number)[:3, :3]
        np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-7)


def test_fragments_are_as_dense_as_real_ones(fragments: Path) -> None:
    """Within the range of the real scene; the medians of many are compared by a slow test."""
    real = json.loads((Path(__file__).parent / "hotel3.json").read_text())
    for number in range(2):
        points = cloud(scene(fragments), number).astype(np.float32)
        assert min(real["points"]) < len(points) < 1.2 * max(real["points"])
        nearest = float(np.median(nearest_distances(points)))
        assert nearest == pytest.approx(np.median(real["nearest"]), rel=0.2)
        for size in (0.025, 0.05):
            own = neighbours_per_voxel(points, size)
            assert own == pytest.approx(np.median(real[f"neighbours_{size}"]), rel=0.2)


def test_ground_truth_aligns_fragment_j_with_i(fragments: Path) -> None:
    folder = scene(fragments)
    found = []
    for name in ("3DMatch", "3DLoMatch"):
        benchmark = fragments / "metadata" / "benchmarks" / name / folder.name
        overlaps = read_gt_overlap(benchmark / "gt_overlap.log")
        assert list(overlaps) == [(0, 1)]
        pairs = read_scene(benchmark, folder.name)
        assert len(pairs) == ((overlaps[0, 1] > 0.3) == (name == "3DMatch"))
        listed = read_indoor_list(fragments / "metadata" / f"{name}.pkl")
        assert [(p.target, p.source) for p in listed] == [(p.target, p.source) for p in pairs]
        found += pairs
    assert len(found) == 1, "another seed is needed: the two test fragments do not overlap"
    pair = found[0]
    transform = pair.transform.numpy()
    poses = [pose(folder, n) for n in (pair.target, pair.source)]
    np.testing.assert_allclose(transform, np.linalg.inv(poses[0]) @ poses[1], atol=1e-6)
    target, source = cloud(folder, pair.target), cloud(folder, pair.source)
    aligned = share_near(target, source @ transform[:3, :3].T + transform[:3, 3])
    assert aligned > pair.overlap * 0.8
    assert aligned > share_near(target, source) + 0.1
    assert pair.information is not None
    assert 0 < pair.information[0, 0] <= 5000


def test_lists_of_pairs_have_the_published_form(fragments: Path) -> None:
    contents = {}
    for name in ("train", "val", "3DMatch", "3DLoMatch"):
        with (fragments / "metadata" / f"{name}.pkl").open("rb") as file:
            contents[name] = pickle.load(file)
    assert contents["train"] == contents["val"] == []
    (one,) = contents["3DMatch"] + contents["3DLoMatch"]
    names = "overlap pcd0 pcd1 rotation translation scene_name frag_id0 frag_id1"
    assert list(one) == names.split()
    folder = scene(fragments)
    for number in (0, 1):
        assert one[f"pcd{number}"] == f"test/{folder.name}/cloud_bin_{number}.pth"
    between = np.linalg.inv(pose(folder, 0)) @ pose(folder, 1)
    np.testing.assert_allclose(one["rotation"], between[:3, :3], atol=1e-6)
    np.testing.assert_allclose(one["translation"], between[:3, 3], atol=1e-6)
    assert 0.1 < one["overlap"] <= 1


def test_the_marker_describes_the_scenes(fragments: Path) -> None:
    record = json.loads((fragments / "SIMULATED.json").read_text())
    assert record["format"] == "threedmatch"
    assert record["version"] == THREEDMATCH.version
    folder = scene(fragments)
    assert list(record["scenes"]) == [folder.name]
    own = record["scenes"][folder.name]
    assert own["points"] == [len(cloud(folder, n)) for n in range(2)]
    assert folder.name.endswith(own["room_type"])
    assert {"room", "camera", "motion", "drift"} == set(own["settings"])


def test_a_fragment_does_not_depend_on_the_job_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threedmatch, "FRAMES", 2)  # two frames show it
    taken = Scene(8, "test", 0, 2)
    for folder, first in (("whole", 0), ("part", 1)):
        do_job(tmp_path / folder, Job(taken, first, 2, "samples"))
    for name in ("cloud_bin_1.pth", "cloud_bin_1.info.txt"):
        whole, part = (
            (tmp_path / folder / "data/test" / taken.name / name).read_bytes()
            for folder in ("whole", "part")
        )
        assert whole == part, name


def test_all_room_types_take_their_turn() -> None:
    for split in ("train", "val", "test"):
        assert len({Scene(0, split, index, 2).room_type for index in range(12)}) == 12


def test_arguments_that_make_no_sense_are_named(tmp_path: Path) -> None:
    for wrong, message in (
        ({"fragments": 1}, "fragments=1"),
        ({"train_scenes": -1}, "train_scenes=-1"),
        ({"train_scenes": 0, "val_scenes": 0, "test_scenes": 0}, "at least one scene"),
        ({"seed": -1}, "seed=-1"),
        ({"fusion": "median"}, "fusion 'median' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            simulate_fragments(tmp_path / "set", progress=False, **wrong)
        assert not (tmp_path / "set").exists()
