"""Every dataflow on a CPU: the reference against loops, the others against it in float64."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import pcnn
from pcnn.dataflows import Dataflow, OutputStationary, Reference
from pcnn.geometry import Kernel, KernelMap, layouts
from pcnn.maps import SortedSearch
from pcnn.nn import Conv3d
from pcnn.ops import Engine, conformance
from pcnn.ops.conformance import Case
from tests import oracle
from tests.clouds import surface_grid, triplets_of
from tests.engines import DATAFLOWS, SEVERAL_PER_SLOT
from tests.random_maps import FanIn, random_map
from tests.specs import EXACT
from tests.tolerance import RELATIVE_RMS, relative_rms

HALF, BRAIN, DOUBLE = torch.float16, torch.bfloat16, torch.float64
K3, EVEN = Kernel.of(3), Kernel.of(2, 2)
CASES = [
    Case(K3, 4, 6, DOUBLE, groups=2),
    Case(Kernel.of(3, 2), 1, 3, DOUBLE, n=150),
    Case(K3, 33, 16, HALF),
    Case(Kernel.of((1, 3, 5)), 8, 3, BRAIN, transposed=True),
    Case(EVEN, 4, 4, DOUBLE, transposed=True),
    Case(K3, 4, 6, DOUBLE, n=1),
    Case(K3, 4, 6, DOUBLE, n=0),
    Case(Kernel.of(1), 2, 2, HALF, n=500, scale=40.0),  # gradients beyond float16
]
FAN_IN = [
    FanIn(K3, 4, 6, DOUBLE, groups=2, n=90, symmetric=True),
    FanIn(K3, 33, 16, HALF, n=150, symmetric=True),
    FanIn(Kernel.of((1, 1, 3)), 8, 3, BRAIN, n=150, transposed=True),
    FanIn(EVEN, 1, 1, DOUBLE, n=300, transposed=True),
    FanIn(K3, 4, 6, DOUBLE, n=0),
]
FUSED = [
    *(Case(K3, 4, 6, HALF, n=200), Case(EVEN, 4, 6, DOUBLE, n=200), Case(K3, 4, 6, DOUBLE, n=0)),
    *(FanIn(K3, 4, 6, HALF, n=100, symmetric=symmetric) for symmetric in (False, True)),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 64)


def make(n: int, kernel: Kernel, transposed: bool = False) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


@pytest.mark.parametrize(
    "build",
    [
        lambda: make(150, K3),
        lambda: make(150, Kernel.of(3, 2)),
        lambda: make(150, EVEN, transposed=True),
        lambda: make(1, K3),
        lambda: random_map(60, 60, 27, 300, symmetric=True),
        lambda: random_map(20, 30, 8, 200),
    ],
    ids=["submanifold", "strided", "transposed", "one voxel", "symmetric", "several a slot"],
)
def test_the_reference_equals_loops(build: Callable[[], KernelMap]) -> None:
    kernel_map = build()
    edges, flow = triplets_of(kernel_map), Reference()
    pairs, back = kernel_map.layout("pairs"), kernel_map.transpose()
    for c_in, c_out, groups in ((1, 3, 1), (4, 33, 1), (4, 6, 2)):
        x, y = torch.randn(kernel_map.n_in, c_in), torch.randn(kernel_map.n_out, c_out)
        weight = torch.randn(kernel_map.volume, c_in // groups, c_out).double()
        x, y, spec = x.double(), y.double(), EXACT._replace(groups=groups)
        out = flow.forward(x, weight, pairs, kernel_map.n_out, spec)
        expected = oracle.convolution(x.numpy(), weight.numpy(), edges, kernel_map.n_out, groups)
        np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-12)
        # <forward(x, W), y> = <x, forward(y, W transposed) over the transposed map>
        # = <W, weight_grad(x, y)>
        turned = spec._replace(transposed=True)
        x_like = flow.forward(y, weight, back.layout("pairs"), kernel_map.n_in, turned)
        weight_like = flow.weight_grad(x, y, pairs, spec)
        inner = float((out * y).sum())
        assert float((x_like * x).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)
        assert float((weight_like * weight).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)
        if kernel_map.symmetric:  # mirrored, it is the transposed map
            mirrored = spec._replace(mirrored=True)
            found = flow.forward(x, weight, pairs, kernel_map.n_out, mirrored)
            wanted = flow.forward(x, weight, back.layout("pairs"), kernel_map.n_out, spec)
            torch.testing.assert_close(found, wanted)
            found = flow.weight_grad(x, y, pairs, mirrored)
            torch.testing.assert_close(found, flow.weight_grad(x, y, back.layout("pairs"), spec))


@pytest.mark.parametrize(
    ("dataflow", "case"),
    [
        *itertools.product(DATAFLOWS, CASES),
        *itertools.product(SEVERAL_PER_SLOT, FAN_IN),
        (OutputStationary(), CASES[0]),
    ],
    ids=str,
)
def test_products_mirrored_or_not_equal_the_references(dataflow: Dataflow, case: Case) -> None:
    conformance.check_products(dataflow, case)


@pytest.mark.parametrize(
    "dataflow", [d for d in SEVERAL_PER_SLOT if d.fuses] + [DATAFLOWS[-3]], ids=str
)
@pytest.mark.parametrize("epilogue", ["", "a", "b", "abr+"])
def test_epilogues_and_skip_connections(dataflow: Dataflow, epilogue: str) -> None:
    for case, c_skip in itertools.product(FUSED, (0, 5)):
        if dataflow in SEVERAL_PER_SLOT or not isinstance(case, FanIn):
            fused = replace(case, c_skip=c_skip, epilogue=epilogue)
            conformance.check_products(dataflow, fused)


@pytest.mark.parametrize("dataflow", [*DATAFLOWS, OutputStationary()], ids=str)
def test_an_autocast_around_a_dataflow_changes_no_dtype(dataflow: Dataflow) -> None:
    with torch.autocast("cpu", BRAIN):
        for dtype, groups in ((torch.float32, 1), (HALF, 2), (DOUBLE, 1)):
            conformance.check_products(dataflow, Case(K3, 4, 6, dtype, groups))
    grid = surface_grid(100)
    layer = Conv3d(4, 6, 3, groups=2, engine=Engine("tested", SortedSearch(), dataflow))
    x = torch.randn(grid.rows, 4, requires_grad=True)
    gradients = []
    for dtype in (BRAIN, DOUBLE):
        layer.to(torch.float32 if dtype == BRAIN else dtype).zero_grad()
        with torch.autocast("cpu", BRAIN, enabled=dtype == BRAIN):
            y = layer(pcnn.SparseTensor(x if dtype == BRAIN else x.double(), grid))
            assert y.features.dtype == dtype
            y.features.sum().backward()  # torch advises against it, and it works
        gradients.append(layer.weight.grad)
    assert relative_rms(*gradients) < RELATIVE_RMS[BRAIN]
