from __future__ import annotations

import pytest
import torch

from pcnn.bench import layers as layers_suite
from pcnn.bench.layers import bench_layers
from pcnn.bench.scenes import load_scene
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


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = layers_suite.convolution
    monkeypatch.setattr(layers_suite, "convolution", lambda *args: 1.01 * right(*args))
    timed: list[object] = []
    monkeypatch.setattr(layers_suite, "measure", lambda *args, **_: timed.append(args))
    with pytest.raises(CheckFailed, match="out is off"):
        list(bench_layers(load_scene("random_1k"), resolve("reference"), CPU, channels=[(4, 4)]))
    assert not timed
