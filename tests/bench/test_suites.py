from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pcnn.bench import layers as layers_suite
from pcnn.bench.layers import bench_layers
from pcnn.bench.maps import bench_maps
from pcnn.bench.scenes import load_scene, noise, surface
from pcnn.bench.verify import CheckFailed
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_layers_are_checked_and_timed(device: str) -> None:
    scene = load_scene("surface_1k")
    rows = list(
        bench_layers(
            scene, resolve("reference"), torch.device(device), channels=[(3, 5)], repeats=3
        )
    )
    assert [(row.what, row.k, row.stride) for row in rows] == [
        ("layer", 3, 1),
        ("train", 3, 1),
        ("layer", 2, 2),
        ("train", 2, 2),
    ]
    for row in rows:
        assert row.checked
        assert row.workload == "surface_1k (generated)"
        assert (row.n, row.c_in, row.c_out, row.dtype) == (scene.grid.rows, 3, 5, "float32")
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms
        assert (row.memory_mb is None) == (device == "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_maps_are_checked_and_timed(device: str) -> None:
    scene = load_scene("random_1k")
    rows = list(
        bench_maps(
            scene, resolve("reference"), torch.device(device), kernels=[(3, 1), (2, 2)], repeats=3
        )
    )
    assert [(row.k, row.product) for row in rows] == [
        (k, product) for k in (3, 2) for product in ("pairs", "ready", "train")
    ]
    assert all(row.checked and row.what == "map" and row.wall_ms > 0 for row in rows)


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = layers_suite.convolution
    monkeypatch.setattr(layers_suite, "convolution", lambda *args: 1.01 * right(*args))
    timed: list[object] = []
    monkeypatch.setattr(layers_suite, "measure", lambda *args, **_: timed.append(args))
    with pytest.raises(CheckFailed, match="out is off"):
        list(bench_layers(load_scene("random_1k"), resolve("reference"), CPU, channels=[(4, 4)]))
    assert not timed


def test_a_workload_file_is_read(tmp_path: Path) -> None:
    coords = np.array([[0, -1, 2, 3], [0, -1, 2, 4], [1, 0, 0, 0]], dtype=np.int32)
    np.savez(tmp_path / "street.npz", coords=coords, voxel_size=0.05)
    scene = load_scene(str(tmp_path / "street.npz"))
    assert scene.name == "street"
    assert scene.grid.coords.tolist() == coords.tolist()
    assert scene.grid.batch_size == 2


def test_what_is_no_workload_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="surface_20k"):
        load_scene("nowhere.npz")
    np.savez(tmp_path / "floats.npz", coords=np.zeros((3, 4)))
    with pytest.raises(ValueError, match="integers"):
        load_scene(str(tmp_path / "floats.npz"))
    np.savez(tmp_path / "other.npz", points=np.zeros((3, 4)))
    with pytest.raises(ValueError, match="no array coords"):
        load_scene(str(tmp_path / "other.npz"))
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04torn")
    with pytest.raises(ValueError, match="no array coords"):
        load_scene(str(tmp_path / "torn.npz"))


@pytest.mark.parametrize("generate", [noise, surface])
def test_generated_scenes_have_the_size_asked_for_and_are_the_same_each_time(generate) -> None:
    cells = generate(20_000)
    assert abs(len(cells) - 20_000) < 2_000
    assert len(np.unique(cells, axis=0)) == len(cells)
    assert np.array_equal(cells, generate(20_000))
