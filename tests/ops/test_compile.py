"""torch.compile on planned input: one graph, few compilations, the values of eager calls."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import pcnn
from pcnn.models import MinkUNet42, SparseResNet21
from tests.clouds import surface_grid

#: The compiler takes sizes of zero and one for constants: each asks for a graph of its own.
SIZES = (2000, 1500, 0, 1, 2, 700, 1000, 900, 3000, 1200, 1800, 600)
MOST_GRAPHS = 4

MODELS: dict[str, Callable[[], nn.Module]] = {
    "minkunet42": partial(MinkUNet42, width=0.125),
    "sparse_resnet21": partial(SparseResNet21, width=0.25),
}


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()


def features_of(out: object) -> list[Tensor]:
    parts = out if isinstance(out, list | tuple) else [out]
    return [part.features if isinstance(part, pcnn.SparseTensor) else part for part in parts]


def run_all(
    make: Callable[[], nn.Module],
    training: bool,
    backend: str,
    device: str = "cpu",
    sizes: tuple[int, ...] = SIZES,
    tolerance: float = 1e-9,
    dtype: torch.dtype = torch.float64,
) -> int:
    """Compiled and eager calls on clouds of all sizes; the number of graphs."""
    net = make().to(device, dtype).train(training)
    twin = copy.deepcopy(net)
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend=backend)
    planner = pcnn.Planner(net)
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    for seed, n in enumerate(sizes):
        grid = surface_grid(n, batch_size=2, seed=seed).to(device)
        planner(grid, backward=training)
        x = torch.randn(grid.rows, 4, dtype=dtype, device=device)
        with torch.set_grad_enabled(training):
            found = features_of(compiled(pcnn.SparseTensor(x, grid)))
            wanted = features_of(twin(pcnn.SparseTensor(x, grid)))
        for one, other in zip(found, wanted, strict=True):
            close(one, other)
        if training:
            for model, outs in ((net, found), (twin, wanted)):
                model.zero_grad()
                torch.stack([out.square().sum() for out in outs]).sum().backward()
            pairs = zip(net.parameters(), twin.parameters(), strict=True)
            for one, other in pairs:
                scale = max(1.0, float(other.grad.abs().max()))  # of sums over all sites
                close(one.grad / scale, other.grad / scale)
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_networks_compile_whole_and_for_clouds_of_every_size(model: str, training: bool) -> None:
    assert run_all(MODELS[model], training, "aot_eager") <= MOST_GRAPHS


@pytest.mark.parametrize(("model", "training"), [("minkunet42", False), ("sparse_resnet21", True)])
def test_one_graph_serves_clouds_of_many_sizes(model: str, training: bool) -> None:
    assert run_all(MODELS[model], training, "aot_eager", sizes=(2000, 1500, 3000, 800)) == 1


@pytest.mark.parametrize("training", [False, True])
def test_layers_compile_for_clouds_of_every_size(training: bool) -> None:
    assert run_all(two_layers, training, "aot_eager") <= MOST_GRAPHS


def two_layers() -> nn.Module:
    return pcnn.nn.Sequential(
        pcnn.nn.Conv3d(4, 8, 3, 2), nn.BatchNorm1d(8), nn.ReLU(), pcnn.nn.Conv3d(8, 8, 3)
    )


@pytest.mark.slow  # needs a C++ compiler, and its time
@pytest.mark.parametrize("training", [False, True])
def test_generated_code_computes_the_same(training: bool) -> None:
    assert run_all(two_layers, training, "inductor") <= MOST_GRAPHS


def two_levels() -> nn.Module:
    """No layout that its convolutions read has as many rows as the coarsest level."""
    return pcnn.nn.Sequential(
        pcnn.nn.Conv3d(4, 8, 2, 2), pcnn.nn.Conv3d(8, 8, 2, 2), pcnn.nn.Conv3d(8, 8, 3)
    )


@pytest.mark.slow  # needs a C++ compiler
@pytest.mark.parametrize("training", [False, True])
def test_generated_code_knows_the_rows_of_every_level(training: bool) -> None:
    assert run_all(two_levels, training, "inductor", sizes=(500, 700)) == 1


def test_input_that_was_not_planned_is_named() -> None:
    compiled = torch.compile(two_layers().eval(), fullgraph=True, dynamic=True, backend="eager")
    grid = surface_grid(300)
    grid.strided(pcnn.Kernel.of(3, 2))
    with torch.no_grad(), pytest.raises(Exception, match=r"pcnn\.plan\(model, geometry\)"):
        compiled(pcnn.SparseTensor(torch.randn(grid.rows, 4), grid))


@pytest.mark.gpu
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_networks_compile_on_a_gpu(model: str, training: bool) -> None:
    sizes = tuple(10 * n if n > 2 else n for n in SIZES)
    graphs = run_all(MODELS[model], training, "inductor", "cuda", sizes, 2e-2, torch.float32)
    assert graphs <= MOST_GRAPHS
