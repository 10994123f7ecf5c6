import re

import pytest
import torch
from rich.console import Console

import pcnn
from pcnn.runtime import explaining
from tests.clouds import surface_grid


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def cloud(n: int) -> pcnn.SparseTensor:
    grid = surface_grid(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)


def explained(x: pcnn.SparseTensor, repeats: int = 1) -> tuple[explaining.Explanation, str]:
    net = pcnn.models.MinkUNet42(width=0.125)
    explanation = pcnn.explain(net, x, repeats=repeats)
    assert net.training
    return explanation, str(explanation)


def test_every_convolution_is_explained() -> None:
    x = cloud(300)
    explanation, text = explained(x)
    layers = {layer.name: layer for layer in explanation.layers}
    assert sum(layer.kind != "linear" for layer in layers.values()) == 42
    stem, down, up = (layers[n] for n in ("stem.0.conv", "encoder.0.0.conv", "up.3.conv"))
    (built,) = (m for m in x.geometry.cached_maps() if m.volume == 27)
    assert (stem.kernel, stem.c_in, stem.c_out) == ("3^3", 4, 4)
    assert stem.n_in == stem.n_out == x.geometry.rows
    assert stem.triplets == built.triplets
    assert (down.kernel, down.kind) == ("2^3 / 2", "Conv3d")
    assert (up.n_in, up.n_out, up.kind) == (down.n_out, down.n_in, "ConvTranspose3d")
    shortcut = layers["decoder.0.0.shortcut.conv"]
    assert (shortcut.kind, shortcut.dataflow) == ("linear", "linear")
    assert shortcut.triplets == shortcut.n_out
    assert all(layer.ms > 0 for layer in layers.values())
    assert explanation.layers_ms == pytest.approx(sum(layer.ms for layer in layers.values()))
    assert all(layer.floor_ms is None for layer in layers.values())
    for name in layers:
        assert name in text
    line = next(line for line in text.splitlines() if "up.3.conv" in line)
    for word in ("2^3 / 2 transposed", f"{up.n_in} -> {up.n_out}", str(up.triplets), "Blocked"):
        assert word in line
    assert re.search(r"all convolutions.* %", text)
    assert re.search(r"whole network.*100.0 %", text)


def test_floors_of_a_known_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explaining, "_device_name", lambda device: "NVIDIA H200")
    net = pcnn.nn.Conv3d(4, 8, 3).half()
    x = cloud(200)
    (layer,) = pcnn.explain(net, x, repeats=1).layers
    assert layer.dtype == "float16"
    moved = 2 * (x.geometry.rows * (4 + 8) + 27 * 4 * 8)
    assert layer.floor_ms == pytest.approx(1e3 * moved / 4.2e12)


def test_an_empty_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no site"):
        pcnn.explain(pcnn.nn.Conv3d(4, 8, 3), cloud(0))


def test_the_table_is_returned_and_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = pcnn.explain(pcnn.nn.Conv3d(4, 8, (3, 1, 3)), cloud(50), repeats=1)
    assert not capsys.readouterr().out
    Console(width=200).print(found)
    printed = capsys.readouterr().out
    assert repr(found) == str(found) == printed
    assert "convolutions on cpu" in printed
    assert "3x1x3" in printed
