"""Scenes for training are listed so that training reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from pcnn.datasets.registration import IndoorPairs
from pcnn.datasets.registration.gt_files import read_scene
from pcnn.registration.nearest import nearest_within
from pcnn.registration.transforms import transform_points
from pcnn.simulate.rooms.threedmatch import Job, Scene, finish


def test_training_and_validation_pairs_with_their_overlap(fragments: Path, tmp_path: Path) -> None:
    (taken,) = (fragments / "data" / "test").iterdir()
    scenes = [Scene(8, split, 0, 2) for split in ("train", "val")]
    jobs = [Job(scene, 0, 2, "samples") for scene in scenes]
    for scene in scenes:  # validation lies beside training
        shutil.copytree(taken, tmp_path / "data" / "train" / scene.name)
    done = {f"{scene.name}-0000": {"points": [1, 1], "settings": {}} for scene in scenes}
    record = finish(jobs, 1, tmp_path, done)["scenes"]
    for scene in scenes:
        data = IndoorPairs(tmp_path, scene.split)
        (pair,) = data.pairs
        assert (pair.scene, pair.target, pair.source) == (scene.name, 0, 1)
        assert record[scene.name]["pairs"] == {scene.split: 1}
        lists = fragments / "metadata" / "benchmarks"
        (truth,) = (p for name in lists.iterdir() for p in read_scene(name / taken.name, "s"))
        torch.testing.assert_close(pair.transform, truth.transform, atol=1e-9, rtol=0)
        source, target = (data.cloud(pair.scene, i) for i in (1, 0))
        moved = transform_points(pair.transform.float(), source)
        _, found = nearest_within(moved, target, 0.0375)
        share = float((found >= 0).double().mean())
        assert pair.overlap is not None
        assert abs(share * len(source) / min(len(source), len(target)) - pair.overlap) < 0.15
