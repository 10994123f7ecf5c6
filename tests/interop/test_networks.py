"""Published networks in their own files and names compute in ours what they compute there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from typer.testing import CliRunner

import pcnn
from pcnn.cli.commands import app
from pcnn.errors import FileError
from pcnn.geometry import grid_of_cells
from pcnn.interop import PUBLISHED, load_network, published, read_state
from tests.interop.plain_networks import Fcgf, OpenPcDet, Plain, Pointcept, SpvNas

CELLS = torch.randint(-6, 7, (70, 3), generator=torch.Generator().manual_seed(1)).unique(dim=0)
GRID = grid_of_cells(CELLS, torch.arange(len(CELLS)) % 2, 2)


def minkunet(x: Tensor) -> tuple[Plain, Tensor]:
    plain = SpvNas(GRID.coords.long())
    found = plain.minkunet(x, 5)
    plain.transform(0, torch.zeros(1, 4), 32)  # is in the files, and idle
    return plain, found


def spvcnn(x: Tensor) -> tuple[Plain, Tensor]:
    plain = SpvNas(GRID.coords.long())
    return plain, plain.spvcnn(x, 5)


def spunet(x: Tensor) -> tuple[Plain, Tensor]:
    plain = Pointcept(GRID.coords.long(), 1e-3)
    return plain, plain(x, 5)


def resunet(x: Tensor) -> tuple[Plain, Tensor]:
    plain = Fcgf(GRID.coords.long())
    return plain, plain(x, 32)


CASES: dict[tuple[str, str], Callable[[Tensor], tuple[Plain, Tensor]]] = {
    ("torchsparse", "spvcnn"): spvcnn,
    ("spconv", "spunet"): spunet,
    ("minkowski", "resunet"): resunet,
}


@cache
def of_minkunet() -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Input, state and output; not to be changed."""
    x = torch.randn(GRID.rows, 4)
    plain, found = minkunet(x)
    return x, plain.state, found


def same_again(package: str, model: str, network: nn.Module, state: dict[str, Tensor]) -> None:
    """Back in their form, every parameter is the one of the file, in name and number."""
    back = published(package, model).from_ours(network)
    assert state.keys() == {name for name in back if not name.endswith("num_batches_tracked")}
    for name, value in state.items():
        torch.testing.assert_close(back[name], value, rtol=0, atol=0)


@torch.no_grad()
@pytest.mark.parametrize(("package", "model"), CASES)
def test_a_converted_network_gives_what_its_own_gives(package: str, model: str) -> None:
    x = torch.randn(GRID.rows, 4)
    plain, expected = CASES[package, model](x)
    network, arguments, rows = published(package, model).to_ours(plain.state)
    assert arguments["width"] == (0.125)
    found = network(pcnn.SparseTensor(x, GRID)).features
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    assert {row.theirs.removesuffix(".bn") for row in rows} >= {
        name.rpartition(".")[0].removesuffix(".bn") for name in plain.state
    }
    same_again(package, model, network, plain.state)


@torch.no_grad()
@pytest.mark.parametrize("model", ["centerpoint", "second"])
def test_a_detector_gives_what_its_own_gives(model: str) -> None:
    shape = (25, 16, 16)  # z, y, x
    draw = torch.Generator().manual_seed(2)
    # blobs, so that sites have neighbours at every level
    cells = (torch.rand(60, 3, generator=draw) * torch.tensor([16, 15, 25])).long().unique(dim=0)
    grid = replace(
        grid_of_cells(cells, torch.arange(len(cells)) % 2, 2, "reached"),
        spatial_shape=shape[::-1],
    )
    x = torch.randn(grid.rows, 5, generator=draw)
    plain = OpenPcDet(grid.coords.long()[:, [0, 3, 2, 1]], shape, model == "second")
    expected = plain(x)
    network, arguments, _ = published("spconv", model).to_ours(
        {f"backbone_3d.{name}": value for name, value in plain.state.items()}
        | {"dense_head.weight": torch.zeros(3)}
    )
    assert arguments == {"in_channels": 5, "width": 0.125}
    found = network(pcnn.SparseTensor(x, grid))
    for y, own, coords in zip(found, expected, plain.levels, strict=True):
        cell = y.coords.long()
        cell[:, 1:] //= torch.tensor(y.tensor_stride)
        rows = {tuple(site): row for row, site in enumerate(coords[:, [0, 3, 2, 1]].tolist())}
        order = [rows[tuple(site)] for site in cell.tolist()]
        assert len(order) == len(coords)
        assert float((y.features - own[order]).abs().max() / own.abs().max()) < 1e-5
    if model == "second":
        return same_again("spconv", model, network, plain.state)
    back = published("spconv", model).from_ours(network)
    assert {n for n in back if not n.endswith("num_batches_tracked")} == plain.state.keys()
    assert not back["conv1.0.conv1.bias"].any()  # part of the mean behind it


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
    back = tmp_path / "back.safetensors"
    said = run(app, ["convert", str(out), "--to", "torchsparse", *words, "--out", str(back)])
    assert said.exit_code == 0, said.output
    again = read_state(back)
    assert all(torch.equal(again[n], v) for n, v in state.items() if "point_" not in n)
    with torch.no_grad():
        found = load_network(out)(pcnn.SparseTensor(x, GRID)).features
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-5
    with pytest.raises(FileError, match="names no network"):
        load_network(back)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    _, state, _ = of_minkunet()
    known = published("torchsparse", "minkunet")
    with pytest.raises(ValueError, match="no published network of torchsparse equals our spunet"):
        published("torchsparse", "spunet")
    with pytest.raises(ValueError, match=r"has no layer conv_input\.1: it is no SpUNet"):
        published("spconv", "spunet").to_ours(state)
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


def test_every_published_network_has_a_licence() -> None:
    assert {one.licence for one in PUBLISHED.values()} == {"MIT", "Apache-2.0"}
