from io import StringIO

import pytest
import torch
from rich.console import Console

import pcnn
from tests.clouds import surface_grid


def cloud(n: int) -> pcnn.SparseTensor:
    grid = surface_grid(n)
    return pcnn.SparseTensor(torch.randn(grid.rows, 4), grid)


def test_every_convolution_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    x, net = cloud(300), pcnn.models.MinkUNet42(width=0.125)
    explanation = pcnn.explain(net, x, repeats=1)
    assert net.training
    layers = {layer.name: layer for layer in explanation.layers}
    assert sum(layer.kind != "linear" for layer in layers.values()) == 42
    stem, down, up = (layers[n] for n in ("stem.0.conv", "encoder.0.0.conv", "up.3.conv"))
    (built,) = (m for m in x.geometry.cached_maps() if m.volume == 27)
    assert (stem.kernel, stem.c_in, stem.c_out) == ("3^3", 4, 4)
    assert (stem.n_in, stem.n_out, stem.triplets) == (*[x.geometry.rows] * 2, built.triplets)
    assert (down.kernel, down.kind) == ("2^3 / 2", "Conv3d")
    assert (up.n_in, up.n_out, up.kind) == (down.n_out, down.n_in, "ConvTranspose3d")
    shortcut = layers["decoder.0.0.shortcut.conv"]
    assert (shortcut.kind, shortcut.dataflow) == ("linear", "linear")
    assert shortcut.triplets == shortcut.n_out
    assert all(layer.ms > 0 for layer in layers.values())
    assert explanation.layers_ms == pytest.approx(sum(layer.ms for layer in layers.values()))
    Console(file=(text := StringIO()), width=200).print(explanation)
    assert repr(explanation) == str(explanation) == text.getvalue()
    lines = str(explanation).splitlines()
    line = next(line for line in lines if "up.3.conv" in line)
    for word in ("2^3 / 2 transposed", f"{up.n_in} -> {up.n_out}", str(up.triplets), "Blocked"):
        assert word in line
    assert any("whole network" in line and "100.0 %" in line for line in lines)


def test_an_empty_input_is_refused() -> None:
    with pytest.raises(ValueError, match="no site"):
        pcnn.explain(pcnn.nn.Conv3d(4, 8, 3), cloud(0))
