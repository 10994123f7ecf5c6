"""Published networks in their own files and names compute in ours what they compute there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

import pcnn
from pcnn.cli.commands import app
from pcnn.errors import FileError
from pcnn.geometry import grid_of_cells
from pcnn.interop import MINKOWSKI, SPCONV, WeightLayout, load_network, load_state, published
from pcnn.models import MinkUNet42
from pcnn.nn import Conv3d, ConvTranspose3d
from tests.interop.plain_networks import Fcgf, SpvNas

CELLS = torch.randint(-6, 7, (70, 3), generator=torch.Generator().manual_seed(1)).unique(dim=0)
GRID = grid_of_cells(CELLS, torch.arange(len(CELLS)) % 2, 2)


@cache
def of_minkunet() -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Input, state and output; not to be changed."""
    x, plain = torch.randn(GRID.rows, 4), SpvNas(GRID.coords.long())
    found = plain(x, 5)
    for number, (inputs, out) in enumerate([(4, 32), (32, 16), (16, 12)]):  # of SPVCNN
        plain.norm(f"point_transforms.{number}.1", plain.linear(LINEAR % number, found, out))
        plain.state[f"{LINEAR % number}.weight"] = torch.randn(out, inputs)
    return x, plain.state, found


LINEAR = "point_transforms.%d.0"


@torch.no_grad()
def test_a_converted_network_gives_what_its_own_gives() -> None:
    x, plain = torch.randn(GRID.rows, 4), Fcgf(GRID.coords.long())
    expected = plain(x, 32)
    network, arguments, names = published("minkowski", "resunet").to_ours(plain.state)
    assert arguments["width"] == 0.125
    found = network(pcnn.SparseTensor(x, GRID)).features
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    assert {name.removesuffix(".bn") for name in names.values()} >= {
        name.rpartition(".")[0].removesuffix(".bn") for name in plain.state
    }


def test_files_of_every_kind_are_converted_and_come_back(tmp_path: Path) -> None:
    x, state, expected = of_minkunet()
    wrapped = {"model": {f"module.{name}": value for name, value in state.items()}, "epoch": 3}
    torch.save(wrapped, tmp_path / "theirs.pt")
    save_file(state, tmp_path / "theirs.safetensors")
    run = CliRunner().invoke
    words = ["--model", "minkunet"]
    for name in ("theirs.pt", "theirs.safetensors"):
        out = tmp_path / f"{name}.ours.safetensors"
        said = run(
            app,
            ["convert", str(tmp_path / name), "--from", "torchsparse", *words, "--out", str(out)],
        )
        assert said.exit_code == 0, said.output
        assert "MinkUNet of SPVNAS: in_channels=4, out_channels=5, width=0.125" in said.output
        assert any(
            line.split()[0] == "encoder.3.1.1.second.conv" and line.split()[2] == "27x32x32"
            for line in said.output.splitlines()
        )
    with torch.no_grad():
        found = load_network(out)(pcnn.SparseTensor(x, GRID)).features
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    with pytest.raises(FileError, match="names no network"):
        load_network(tmp_path / "theirs.safetensors")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    _, state, _ = of_minkunet()
    known = published("torchsparse", "minkunet")
    with pytest.raises(ValueError, match="no published network of torchsparse equals our resunet"):
        published("torchsparse", "resunet")
    with pytest.raises(ValueError, match=r"has no layer norm1\.bn: it is no ResUNetBN2C"):
        published("minkowski", "resunet").to_ours(state)
    with pytest.raises(ValueError, match=r"1 layers that MinkUNet of SPVNAS has not, as extra\.0"):
        known.to_ours(state | {"extra.0.weight": torch.zeros(1)})
    wrong = state | {"stage2.0.net.0.kernel": torch.zeros(8, 4, 5)}
    with pytest.raises(ValueError, match=r"encoder\.1\.0\.conv, from stage2\.0\.net\.0"):
        known.to_ours(wrong)
    torch.save({"state_dict": {"w": tmp_path}}, tmp_path / "code.pt")
    (tmp_path / "text.pt").write_text("no weights")
    out = tmp_path / "ours.safetensors"
    for name, said in (
        ("code.pt", "more than tensors"),
        ("text.pt", "text.pt"),
        ("none.pt", "no such"),
    ):
        words = ["convert", str(tmp_path / name), "--from", "torchsparse", "--model", "minkunet"]
        found = CliRunner().invoke(app, [*words, "--out", str(out)])
        assert found.exit_code == 2, name
        assert said in found.output, name
        assert not out.exists()


@pytest.mark.parametrize("layout", [MINKOWSKI, SPCONV], ids=lambda one: one.package)
def test_any_two_networks_meet_layer_by_layer(layout: WeightLayout) -> None:
    """By their order or by names; what does not fit changes nothing."""
    made, source = MinkUNet42(4, 3, width=0.125), MinkUNet42(4, 3, width=0.125)
    numbers: dict[str, str] = {}
    state = {}
    for name, value in source.state_dict().items():
        layer, _, entry = name.rpartition(".")
        theirs = numbers.setdefault(layer, f"layer{len(numbers)}")
        module = source.get_submodule(layer)
        if entry == "weight" and isinstance(module, Conv3d | ConvTranspose3d):
            entry, value = layout.parameter, layout.from_ours(value, module.kernel)
        state[f"{theirs}.{entry}"] = value
    head, before = numbers["head.module"], {n: v.clone() for n, v in made.state_dict().items()}
    less = {n: v for n, v in state.items() if not n.startswith(head)}
    for given, names, message in (
        (less, None, f"layers with parameters, the state of {layout.package}"),
        ({**less, f"{head}.bias": torch.zeros(3)}, None, "it has no weight"),
        ({**state, f"{head}.weight": torch.zeros(9, 9)}, None, r"head.module.*\[9, 9\], ours"),
        (state, {**numbers, "head.module": "nowhere"}, "has no layer nowhere"),
        ({**state, f"{head}.scale": torch.zeros(1)}, None, "ours has no scale"),
    ):
        with pytest.raises(ValueError, match=message):
            load_state(made, given, layout, names)
    assert all(torch.equal(value, before[n]) for n, value in made.state_dict().items())
    state[f"{head}.bias"] = state[f"{head}.bias"][None]  # as MinkowskiEngine keeps it
    load_state(made, dict(reversed(state.items())), layout, numbers)
    for name, value in source.state_dict().items():
        assert torch.equal(made.state_dict()[name], value), name
    load_state(made, state, layout)
