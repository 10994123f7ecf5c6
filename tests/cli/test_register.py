from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.datasets.readers.clouds import read_points
from pcnn.files.simulated import write_marker
from pcnn.metrics.registration import rotation_error, translation_error
from pcnn.registration.transforms import inverse, transform_points
from pcnn.visualize import write_coloured_ply
from tests.cli.invoking import invoke
from tests.registration.clouds import place, two_views
from tests.registration.poses import random_pose
from tests.visualize.view.test_page import held


def test_a_pair_is_registered(tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    source, target, truth = two_views()
    set_of_a = tmp_path / "simulated"
    set_of_a.mkdir()
    write_marker(set_of_a, {})
    np.save(set_of_a / "a.npy", source.numpy())
    write_coloured_ply(tmp_path / "b.ply", target.numpy(), np.zeros(target.shape, np.uint8))
    out = tmp_path / "out"
    words = "register", set_of_a / "a.npy", tmp_path / "b.ply", "--out", out
    said = invoke(*words, "--no-sensor-at-origin", "--model", "fpfh")
    assert "descriptor: fpfh 0.05 m" in said
    written = json.loads((out / "transform.json").read_text())
    transform = torch.tensor(written["transform"], dtype=torch.float64)
    assert float(rotation_error(transform, truth)) < 1
    assert float(translation_error(transform, truth)) < 0.03
    content, _ = held(out / "view.html")
    assert [cloud["name"] for cloud in content["clouds"]] == ["a.npy", "b.ply"]
    assert content["simulated"] == "SIMULATED DATA: a.npy"
    pose = np.reshape(content["clouds"][0]["pose"], (4, 4)).T
    assert np.allclose(pose, transform.numpy())


def test_bad_input_ends_with_a_message_and_writes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    good, out = tmp_path / "good.npy", tmp_path / "out"
    np.save(good, np.random.default_rng(0).random((3000, 3)).astype(np.float32))
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    np.save(tmp_path / "nan.npy", np.full((5, 3), np.nan))
    np.save(tmp_path / "flat.npy", np.zeros((5, 2)))
    (tmp_path / "a.e57").write_text("1 2 3")
    for name in ("empty.npy", "nan.npy", "flat.npy", "a.e57", "none.ply"):
        assert name in invoke("register", tmp_path / name, good, "--out", out, code=2)
    # noise against other noise: nothing belongs together
    other = tmp_path / "other.npy"
    np.save(other, np.random.default_rng(1).random((3000, 3)).astype(np.float32))
    said = invoke("register", good, other, "--out", out, "--min-inliers", 100, code=1)
    assert "no transform found" in said
    assert not out.exists()
    # what a file holds is no cloud, or too little of one: the file is named
    for name, content, code in (("a.pth", {"a": 1}, 2), ("b.pth", torch.ones(9, 3), 1)):
        torch.save(content, tmp_path / name)
        assert name in invoke("register", tmp_path / name, good, "--out", out, code=code)


def test_fpfh_without_its_package_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "open3d", None)
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((3000, 3)).astype(np.float32))
    cloud = tmp_path / "a.npy"
    said = invoke("register", cloud, cloud, "--model", "fpfh", "--out", tmp_path / "out", code=2)
    assert "Open3D" in said
    assert not (tmp_path / "out").exists()


def test_many_clouds_are_placed_together(tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    write_marker(tmp_path, {})
    world = place()
    parts = [world[world[:, 0] < 2.6], world[world[:, 0] > 1.2], world[world[:, 1] < 2.8][::2]]
    poses = [random_pose(seed) for seed in (4, 5, 6)]  # of each part in the world
    far = torch.tensor([[5e5, 0, 0]]) * torch.tensor([[0], [1], [0]])  # one has a map's coordinates
    local = [
        transform_points(inverse(pose), part.double()) + away
        for part, pose, away in zip(parts, poses, far, strict=True)
    ]
    for number, points in enumerate(local):
        np.save(tmp_path / f"part_{number}.npy", points.numpy())
    np.save(tmp_path / "other.npy", (torch.rand(3000, 3) * torch.tensor([2, 2, 0.0])).numpy())
    files = [tmp_path / f"part_{number}.npy" for number in range(3)]
    out = tmp_path / "out"
    words = "register", *files, "--graph", "--no-sensor-at-origin", "--model", "fpfh", "--out", out
    said = invoke(*words)
    content, _ = held(out / "view.html")
    assert [cloud["name"] for cloud in content["clouds"]] == [file.name for file in files]
    assert "3 pairs registered, 0 without a transform; 1 loop kept, 0 dropped" in said
    written = json.loads((out / "poses.json").read_text())
    assert [edge["role"] for edge in written["edges"]].count("tree") == 2
    for file, part, points in zip(files, parts, local, strict=True):
        found = torch.tensor(written["poses"][str(file)], dtype=torch.float64)
        truth = transform_points(inverse(poses[0]), part.double())
        assert float((transform_points(found, points) - truth).norm(dim=1).max()) < 0.1
    merged = read_points(out / "merged.ply")
    assert len(merged.points) == sum(map(len, parts))
    assert content["simulated"] == "SIMULATED DATA"
    said = invoke(*words[:3], tmp_path / "other.npy", *words[4:], code=1)
    assert "other.npy: no transform connects it with" in " ".join(said.split())
    assert "given twice" in invoke(*words[:4], files[0], *words[4:], code=2)
