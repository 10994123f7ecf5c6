"""Gather, multiply, scatter by kernels, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows import Reference, gather_scatter
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Fixed, Separate
from pcnn.geometry import Kernel
from tests.kernels.triton.rows import DEVICE, MAPS, make, with_turns
from tests.specs import EXACT, SINGLE, spec_of
from tests.tolerance import RELATIVE_RMS, relative_rms

SETTINGS = [
    TORCHSPARSE,
    MINUET,
    replace(TORCHSPARSE, locality=False, vectorised=False),
    GatherScatter(Fixed(), identity=False, gather_tile=8, scatter_tile=4),
    GatherScatter(Separate(), fused=False, locality=False),
]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_scatter, "uses_kernels", lambda x: True)


@pytest.mark.parametrize(
    ("dataflow", "kernel", "sizes"),
    with_turns(SETTINGS, MAPS, turning=((5, 8, 1, False), (8, 6, 2, True))),
)
def test_both_products_equal_the_reference(
    dataflow: GatherScatter, kernel: str, sizes: tuple[int, int, int, bool]
) -> None:
    c_in, c_out, groups, mirrored = sizes
    transposed = mirrored
    kernel_map = make(*MAPS[kernel], n=24)
    weight = torch.randn(kernel_map.volume, c_in // groups, c_out, device=DEVICE).double()
    x = torch.randn(kernel_map.n_in, c_in, device=DEVICE).double()
    grad = torch.randn(kernel_map.n_out, c_out, device=DEVICE).double()
    mine = kernel_map.layouts(dataflow.needs)
    theirs = kernel_map.layouts(("pairs",))
    rows = torch.randn(kernel_map.n_in, c_out, device=DEVICE).double() if transposed else x
    spec = EXACT._replace(groups=groups, mirrored=mirrored)
    turned = spec._replace(transposed=transposed)
    out = dataflow.forward(rows, weight, mine, kernel_map.n_out, turned)
    expected = Reference().forward(rows, weight, theirs, kernel_map.n_out, turned)
    torch.testing.assert_close(out, expected)
    out = dataflow.weight_grad(x, grad, mine, spec)
    torch.testing.assert_close(out, Reference().weight_grad(x, grad, theirs, spec))


@pytest.mark.parametrize("dataflow", [TORCHSPARSE, SETTINGS[2]], ids=lambda d: d.name)
def test_half_precision_stays_under_its_bound(dataflow: GatherScatter) -> None:
    kernel_map = make(Kernel.of(3))
    x = torch.randn(kernel_map.n_in, 16, device=DEVICE)  # rounded while gathered
    weight = torch.randn(27, 16, 8, device=DEVICE).half()
    half = torch.float16
    mine, theirs = kernel_map.layouts(dataflow.needs), kernel_map.layouts(("pairs",))
    out = dataflow.forward(x, weight, mine, kernel_map.n_out, spec_of(half))
    exact = x.half().double(), weight.double()
    expected = Reference().forward(*exact, theirs, kernel_map.n_out, EXACT)
    assert out.dtype == half
    assert relative_rms(out, expected) < RELATIVE_RMS[half]


@pytest.mark.parametrize("dataflow", SETTINGS, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [0, 1])
def test_small_and_empty_clouds(dataflow: GatherScatter, n: int) -> None:
    kernel_map = make(Kernel.of(3), n=n)
    x, weight = torch.randn(kernel_map.n_in, 4, device=DEVICE), torch.randn(27, 4, 5, device=DEVICE)
    layouts = kernel_map.layouts(dataflow.needs)
    out = dataflow.forward(x, weight, layouts, kernel_map.n_out, SINGLE)
    theirs = kernel_map.layouts(("pairs",))
    expected = Reference().forward(x, weight, theirs, kernel_map.n_out, SINGLE)
    torch.testing.assert_close(out, expected)
    grad = dataflow.weight_grad(x, out, layouts, SINGLE)
    torch.testing.assert_close(grad, Reference().weight_grad(x, out, theirs, SINGLE))
