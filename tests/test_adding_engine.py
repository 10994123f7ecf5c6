"""The pages about engines and kernels are enough: its files make one, and no other file changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import torch

import pcnn
from pcnn.dataflows import Reference
from pcnn.maps.conformance import check_builder
from pcnn.nn import Conv3d
from pcnn.ops import Engine
from pcnn.ops.conformance import check_dataflow
from tests import oracle
from tests.clouds import surface

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "adding_an_engine.md", DOCS / "adding_a_kernel.md"]
BLOCK = re.compile(r"```(?:python|cuda)\n(?:#|//) (my_lab/\S+)\n(.*?)```", re.DOTALL)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the page's files."""
    for path, content in BLOCK.findall("".join(page.read_text() for page in PAGES)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "my_lab"
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
        del sys.modules[name]


def close_to_the_oracle(engine: Engine, device: str) -> None:
    """Layers on voxels, with gradients, against loops in float64 that share no code with pcnn."""
    cells = torch.unique(surface(150), dim=0)
    x = pcnn.voxelize(cells.float() + 0.5, torch.randn(len(cells), 4), voxel_size=1.0).to(device)
    grid = x.geometry
    assert isinstance(grid, pcnn.VoxelGrid)
    for size, stride, groups in ((3, 1, 2), ((1, 3, 2), 1, 1), (2, 2, 1)):
        layer = Conv3d(4, 6, size, stride, groups=groups, bias=False, engine=engine).to(device)
        features = x.features.double().requires_grad_()
        y = layer.double()(x.replace(features))
        kernel = layer.kernel
        edges = oracle.triplets(
            grid.coords.tolist(),
            y.geometry.coords.tolist(),
            kernel.size,
            kernel.stride,
            kernel.dilation,
            kernel.padding,
        )
        weight = layer.weight.detach().cpu().numpy()
        source = features.detach().cpu().numpy()
        expected = oracle.convolution(source, weight, edges, y.geometry.rows, groups)
        torch.testing.assert_close(y.features.detach().cpu(), torch.from_numpy(expected))
        seen = torch.randn_like(y.features)
        y.features.backward(seen)
        # the product is linear in either operand, so its gradients follow from one more product
        for gradient, operand in ((features.grad, features), (layer.weight.grad, layer.weight)):
            assert gradient is not None
            inner = float((seen * y.features.detach()).sum())
            assert float((gradient * operand.detach()).sum()) == pytest.approx(inner, rel=1e-9)


def test_the_page_names_its_files(lab: Path) -> None:
    names = ["engine.py", "kernel_search.cu", "kernel_search.py", "my_dataflow.py", "my_search.py"]
    assert sorted(path.name for path in lab.iterdir()) == names


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel(lab: Path, device: str, request: pytest.FixtureRequest) -> None:
    if device == "cpu":
        request.getfixturevalue("emulated")
    builder = import_module("my_lab.kernel_search").KernelSearch()
    check_builder(builder, torch.device(device))
    close_to_the_oracle(Engine("kernel", builder, Reference()), device)


@pytest.mark.parametrize("device", DEVICES)
def test_an_engine(lab: Path, device: str) -> None:
    engine = import_module("my_lab.engine").ENGINE
    check_builder(engine.builder, torch.device(device))
    check_dataflow(engine.dataflow, torch.device(device))
    close_to_the_oracle(engine, device)
    points = pcnn.native_points(torch.rand(50, 3), torch.randn(50, 4), voxel_size=0.3).to(device)
    layers = [Conv3d(4, 5, 3, engine=one).to(device) for one in (engine, "reference")]
    layers[1].load_state_dict(layers[0].state_dict())
    mine, theirs = (layer(points).features for layer in layers)
    torch.testing.assert_close(mine, theirs)


def test_its_kernel_compiles_without_a_device(lab: Path) -> None:
    pytest.importorskip("cuda.core", reason="no compiler of CUDA kernels")
    from pcnn.kernels.compiler import compile_source

    compiled = compile_source(str(lab / "kernel_search.cu"), "sm_90a", {})
    assert not compiled.log
    assert compiled.cubin[:4] == b"\x7fELF"
