from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from pcnn.bench.layers import layer as layer_file
from pcnn.bench.layers import measured as measured_file
from pcnn.bench.layers.layer import products_of
from pcnn.bench.layers.measured import layer_rows
from pcnn.bench.layers.setting import KINDS, LayerShape, Setting
from pcnn.bench.rows import Row
from pcnn.bench.scenes import load_scene
from pcnn.ops.engine import resolve

CPU = torch.device("cpu")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SHAPES = (LayerShape(3, 5, 3), LayerShape(4, 4, 2, 2))


def setting(device: str = "cpu", **other: object) -> Setting:
    engines = [resolve("auto"), resolve("reference")]
    words = {"layers": SHAPES, "repeats": 3, **other}
    return Setting(torch.device(device), [load_scene("surface_1k")], engines, **words)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "tf32"])
def test_every_kind_of_every_layer_is_checked_and_timed(device: str, dtype: str) -> None:
    rows = list(layer_rows(setting(device, dtype=dtype), "layers"))
    left_out = [(row.engine, row.params) for row in rows if "left_out" in (row.params or {})]
    assert not left_out, left_out
    assert [(row.c_in, row.k, row.stride, row.engine, row.what) for row in rows] == [
        (shape.c_in, shape.size, shape.stride, engine, kind)
        for shape in SHAPES
        for engine in ("auto", "reference")
        for kind in KINDS
    ]
    for row in rows:
        assert row.checked, row.params
        assert row.workload == "surface_1k (generated)"
        assert (row.dtype, row.figure, row.run) == (dtype, "layers", None)
        assert 0 < row.min_ms <= row.wall_ms <= row.p90_ms
        assert (row.memory_mb is None) == (device == "cpu")


def test_runs_take_turns_among_the_engines() -> None:
    rows = list(layer_rows(setting(runs=2), "layers", layers=SHAPES[:1], kinds=["layer"]))
    assert [(row.run, row.engine) for row in rows] == [
        (run, engine) for run in (0, 1) for engine in ("auto", "reference")
    ]


def test_only_places_that_are_wanted_are_measured() -> None:
    places = {"surface_1k": {SHAPES[1]: ["train"]}, "elsewhere": {SHAPES[0]: list(KINDS)}}
    rows = list(layer_rows(setting(places=places), "layers"))
    assert {(row.c_in, row.what) for row in rows} == {(4, "train")}


def test_a_wrong_layer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., torch.Tensor] = layer_file.convolution
    monkeypatch.setattr(layer_file, "convolution", lambda *a, **k: 1.01 * right(*a, **k))
    monkeypatch.setattr(measured_file, "measure", lambda *args, **_: pytest.fail("timed"))
    rows = list(layer_rows(setting(layers=SHAPES[:1]), "layers"))
    assert rows
    for row in rows:
        assert "out is off" in str((row.params or {})["left_out"])
        assert not row.checked
        assert row.wall_ms is None


def test_what_an_engine_cannot_serve_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        name = "refuses"

        def build(self, *_: object) -> None:
            raise ValueError("no such kernel")

    engine = replace(resolve("reference"), name="broken", builder=Refuses())
    rows: list[Row] = list(layer_rows(setting(), "f", [(engine, {"t": 1})], SHAPES[:1], ["layer"]))
    assert [row.params for row in rows] == [{"t": 1, "left_out": "ValueError: no such kernel"}]


def test_tf32_is_allowed_only_where_it_is_asked_for() -> None:
    switch = torch.backends.cuda.matmul
    before = switch.allow_tf32
    for dtype in ("tf32", "float32", "float16"):
        with products_of(dtype):
            assert switch.allow_tf32 == (dtype == "tf32")
        assert switch.allow_tf32 == before
