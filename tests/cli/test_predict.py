from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from pcnn.datamodules import CloudDataModule
from pcnn.datasets import CloudSets, FolderSets, SemanticKITTISets
from pcnn.datasets.readers.clouds import read_points
from pcnn.datasets.semantic_kitti_labels import SEMANTIC_KITTI
from pcnn.experiment import networks
from tests.cli.invoking import invoke

CPU = torch.device("cpu")


def config(dataset: str) -> dict[str, Any]:
    kitti = dataset == "kitti"
    names = list(SEMANTIC_KITTI.class_names) if kitti else ["ground", "tree", "house"]
    colors = SEMANTIC_KITTI.colors if kitti else [(0, 0, 255), (0, 255, 0), (255, 0, 0)]
    return {
        "model": {"name": "minkunet", "tasks": ["segmentation"], "geometries": ["voxel"]}
        | {"_target_": "pcnn.models.MinkUNet42", "width": 0.125},
        "geometry": {"_target_": "pcnn.datasets.OnVoxels", "name": "voxel"},
        "engine": {"name": "reference"},
        "task": {"name": "segmentation"},
        "dataset": {"name": dataset, "voxel_size": 0.5, "crop": 5.0},
        "data": {"source": "simulated", "in_channels": 4, "class_names": names}
        | {"colors": [list(color) for color in colors]},
    }


@cache
def random_weights(in_channels: int, classes: int) -> dict[str, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):  # the same whatever ran before
        torch.manual_seed(0)
        net = networks.network(OmegaConf.create(config("kitti")), in_channels, classes)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(4)  # or the class would hang on the last layer's bias alone
    return {f"net.{name}": value for name, value in net.state_dict().items()}


def saved(
    path: Path, dataset: str, channels: list[str] | None = None, further: int = 1, **more: Any
) -> Path:
    """A network with random weights, kept the way a run keeps it.

    Channels besides x, y, z are `further` ones in their usual order where none are named; more keys
    are the data set's.
    """
    cfg = config(dataset)
    if channels is None:
        colours = ["red", "green", "blue"]
        channels = {0: [], 1: ["intensity"], 3: colours, 4: ["intensity", *colours]}[further]
    further = len(channels)
    cfg["data"] |= {"in_channels": 3 + further, "channels": channels}
    cfg["dataset"] |= more
    if dataset == "kitti":
        sets: CloudSets = SemanticKITTISets()
    else:
        names = cfg["data"]["class_names"] if more.get("classes") is None else None
        own = {key: more[key] for key in ("intensity_max",) if key in more}
        sets = FolderSets("x", classes=more.get("classes"), class_names=names, **own)
    cfg["data"]["files"] = CloudDataModule(sets, voxel_size=0.5).files
    state = random_weights(3 + further, len(cfg["data"]["class_names"]))
    torch.save({"state_dict": state | {"loss.weight": torch.ones(1)}, "pcnn_config": cfg}, path)
    return path


@pytest.fixture
def dataset() -> str:
    return "kitti"


@pytest.fixture
def checkpoint(dataset: str, tmp_path: Path) -> Path:
    return saved(tmp_path / "best.ckpt", dataset)


def cloud(n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    scale = [16, 16, 2, 1]
    return ((generator.random((n, 4)) - [0.5, 0.5, 0.5, 0]) * scale).astype(np.float32)


run = partial(invoke, "predict", "--no-view")


def labels(out: Path, name: str) -> np.ndarray:
    """Raw ids of SemanticKITTI, or classes."""
    official = out / f"{name}.label"
    if official.exists():
        return np.fromfile(official, dtype="<u4")
    return np.load(out / f"{name}_label.npy")


@pytest.mark.parametrize("dataset", ["kitti", "folder"])
def test_a_folder_is_labelled_and_bad_files_are_named(
    checkpoint: Path, dataset: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "clouds", tmp_path / "out"
    (source / "deeper").mkdir(parents=True)
    cloud(301).tofile(source / "a.bin")
    np.save(source / "deeper" / os.fsdecode(b"b\xff.npy"), cloud(77, seed=1))
    np.save(source / "a_label.npy", np.zeros(301, dtype=np.int64))
    np.save(source / "a_confidence.npy", np.zeros(301, dtype=np.float32))
    (source / "torn.bin").write_bytes(cloud(10).tobytes()[:-3])
    np.save(source / "narrow.npy", cloud(10)[:, :3])
    np.save(source / "nan.npy", np.full((4, 4), np.nan, dtype=np.float32))
    np.save(source / "huge.npy", cloud(60).astype(np.float64) * [1, 1, 1, 3e38])
    (source / "loop.ply").symlink_to(source / "loop.ply")
    text = run(checkpoint, source, "--out", out, "--device", "cpu", "--view", code=1)
    for name in ("torn.bin", "narrow.npy", "nan.npy", "huge.npy", "loop.ply"):
        assert f"not labelled: {source / name}" in text
    assert "2 clouds labelled" in text
    assert "simulated" in text
    known = SEMANTIC_KITTI.train_to_raw if dataset == "kitti" else range(3)
    for name, n in (("a", 301), (os.fsdecode(b"deeper/b\xff"), 77)):
        found = labels(out, name)
        assert found.shape == (n,)
        assert set(found.tolist()) <= set(known)
        assert read_points(out / f"{name}.ply").n_points == n
    assert len([path for path in out.rglob("*") if path.is_file()]) == 2 * 4
    assert "1 cloud labelled" in run(checkpoint, source / "a.bin", "--out", out)


def test_an_empty_cloud_has_an_empty_result(checkpoint: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "empty.npy", np.empty((0, 4), np.float32))
    run(checkpoint, tmp_path / "empty.npy", "--out", tmp_path / "out", "--view", code=0)
    assert labels(tmp_path / "out", "empty").shape == (0,)
    (tmp_path / "empty.bin").touch()
    text = run(checkpoint, tmp_path / "empty.bin", "--out", tmp_path / "out", code=1)
    assert f"not labelled: {tmp_path / 'empty.bin'}: " in text


def test_what_cannot_start_says_why(checkpoint: Path, tmp_path: Path) -> None:
    cloud(5).tofile(tmp_path / "a.bin")
    np.save(tmp_path / "a.npy", cloud(5))
    (tmp_path / "nothing").mkdir()
    torch.save({"state_dict": {}}, tmp_path / "foreign.ckpt")
    (tmp_path / "torn.ckpt").write_bytes(checkpoint.read_bytes()[:1000])
    for words, named, code in (
        ("best.ckpt absent.bin", "absent.bin", 1),
        ("best.ckpt nothing", "nothing", 1),
        ("best.ckpt a.bin a.npy", "a.npy", 2),
        ("foreign.ckpt a.bin", "pcnn_config", 2),
        ("torn.ckpt a.bin", "torn.ckpt", 2),
        ("absent.ckpt a.bin", "absent.ckpt", 2),
    ):
        paths = [tmp_path / word for word in words.split()]
        assert named in run(*paths, "--out", tmp_path / "out", code=code)
