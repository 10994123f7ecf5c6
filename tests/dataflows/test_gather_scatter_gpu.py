"""Gather, multiply, scatter at the size of scans."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch

from pcnn.dataflows import Reference
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Adaptive, Fixed, Separate, Sorted, Symmetric
from pcnn.geometry import Kernel, KernelMap, grid_of_cells
from pcnn.maps import SortedSearch
from tests.clouds import surface_grid
from tests.specs import EXACT, spec_of
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

pytestmark = pytest.mark.gpu

HALF, SUMS = spec_of(torch.float16), spec_of(torch.float16, torch.float32)
SETTINGS = [
    TORCHSPARSE,
    MINUET,
    GatherScatter(Symmetric(), locality=False),
    GatherScatter(Fixed(), fused=False, locality=False, vectorised=False),
    GatherScatter(Separate(), identity=False, gather_tile=8, scatter_tile=16, streams=3),
    GatherScatter(Adaptive(1), vectorised=False),
    GatherScatter(Sorted(0.3, 3000)),
]
KERNELS = {
    "submanifold": (Kernel.of(3), False),
    "strided": (Kernel.of(3, 2), False),
    "even": (Kernel.of(2, 2), False),
    "even_transposed": (Kernel.of(2, 2), True),
}


@functools.cache
def make(kernel: Kernel, transposed: bool = False, n: int = 10_000) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to("cuda")
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    return kernel_map.transpose() if transposed else kernel_map


def randn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


@pytest.mark.parametrize("dataflow", SETTINGS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("kernel", "dtype", "c_in", "c_out", "groups", "backwards"),
    [
        ("submanifold", torch.float16, 64, 96, 1, True),
        ("submanifold", torch.float16, 33, 20, 1, False),
        ("submanifold", torch.bfloat16, 16, 16, 1, False),
        ("submanifold", torch.float32, 16, 16, 1, True),
        ("submanifold", torch.float64, 16, 16, 1, False),
        ("strided", torch.float16, 8, 12, 2, True),
        ("even", torch.float16, 4, 16, 1, False),
        ("even_transposed", torch.float16, 16, 4, 1, False),
        ("even_transposed", torch.float32, 1, 3, 1, False),
    ],
)
def test_both_products_equal_the_reference(
    dataflow: GatherScatter,
    kernel: str,
    dtype: torch.dtype,
    c_in: int,
    c_out: int,
    groups: int,
    backwards: bool,
) -> None:
    kernel_map = make(*KERNELS[kernel])
    mine, theirs = kernel_map.layouts(dataflow.needs), kernel_map.layouts(("pairs",))
    weight = randn(kernel_map.volume, c_in // groups, c_out, dtype=dtype)
    x = randn(kernel_map.n_in, c_in, dtype=dtype)
    grad = randn(kernel_map.n_out, c_out, dtype=dtype)
    rows = randn(kernel_map.n_in, c_out, dtype=dtype) if backwards else x
    settings = {"groups": groups, "mirrored": backwards}
    spec, exact = spec_of(dtype, **settings), EXACT._replace(**settings)
    turned = {"transposed": backwards}
    n_out = kernel_map.n_out
    out = dataflow.forward(rows, weight, mine, n_out, spec._replace(**turned))
    double = rows.double(), weight.double(), theirs, n_out
    expected = Reference().forward(*double, exact._replace(**turned))
    assert out.dtype == dtype
    assert relative_rms(out, expected) < RELATIVE_RMS[dtype]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    of_map = kernel_map.layouts(dataflow.needs_weight_grad)
    out = dataflow.weight_grad(x, grad, of_map, spec._replace(out_dtype=wide))
    expected = Reference().weight_grad(x.double(), grad.double(), theirs, exact)
    assert out.dtype == wide
    # sums over thousands of rows in the order of a library
    assert relative_rms(out, expected) < 4 * RELATIVE_RMS[wide]


@pytest.mark.parametrize("dataflow", SETTINGS, ids=lambda d: d.name)
def test_the_host_never_waits(dataflow: GatherScatter) -> None:
    made = make(Kernel.of(3))
    x, weight = (randn(*shape, dtype=torch.float16) for shape in ((made.n_in, 16), (27, 16, 8)))
    dataflow.forward(x, weight, made.layouts(dataflow.needs), made.n_out, HALF)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        fresh = KernelMap.from_pairs(*made.layout("pairs"), made.n_in, made.n_out, symmetric=True)
        layouts = fresh.layouts(dataflow.needs)
        out = dataflow.forward(x, weight, layouts, fresh.n_out, HALF)
        dataflow.weight_grad(x, out, layouts, SUMS)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dataflow", SETTINGS, ids=lambda d: d.name)
def test_a_late_producer_on_another_stream_is_followed(dataflow: GatherScatter) -> None:
    kernel_map = make(Kernel.of(3))
    layouts, half = kernel_map.layouts(dataflow.needs), torch.float16
    ready, weight = randn(kernel_map.n_in, 32, dtype=half), randn(27, 32, 32, dtype=half)
    how = layouts, kernel_map.n_out, HALF
    expected = dataflow.forward(ready, weight, *how)
    late = torch.zeros_like(ready)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        late.copy_(ready)
        out = dataflow.forward(late, weight, *how)
        # memory of the buffers may be taken again at once
        torch.full((kernel_map.triplets, 64), float("nan"), device="cuda", dtype=half)
    side.synchronize()
    if dataflow.deterministic:
        assert torch.equal(out, expected)
    assert relative_rms(out, expected) < RELATIVE_RMS[half]


@pytest.mark.parametrize("dataflow", [d for d in SETTINGS if d.deterministic], ids=lambda d: d.name)
def test_two_runs_give_identical_bits(dataflow: GatherScatter) -> None:
    kernel_map = make(Kernel.of(3))
    x, weight = randn(kernel_map.n_in, 32, dtype=torch.float16), randn(27, 32, 64, dtype=torch.half)
    layouts = kernel_map.layouts(dataflow.needs)
    how = layouts, kernel_map.n_out, HALF
    outs = [dataflow.forward(x, weight, *how) for _ in range(2)]
    assert torch.equal(*outs)
    grads = [dataflow.weight_grad(x, outs[0], layouts, SUMS) for _ in range(2)]
    assert torch.equal(*grads)


@pytest.mark.parametrize("dataflow", SETTINGS, ids=lambda d: d.name)
def test_weight_gradients_beyond_float16_do_not_overflow(dataflow: GatherScatter) -> None:
    kernel_map = make(Kernel.of(3))
    x = torch.full((kernel_map.n_in, 8), 300.0, dtype=torch.float16, device="cuda")
    layouts = kernel_map.layouts(dataflow.needs_weight_grad)
    grad = dataflow.weight_grad(x, x, layouts, SUMS)
    expected = 9e4 * kernel_map.offsets.diff().to("cuda")
    torch.testing.assert_close(grad[:, 0, 0], expected.float(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("settings", [{}, {"vectorised": False}])
def test_strided_and_unaligned_features_are_read_rightly(settings: dict[str, bool]) -> None:
    kernel_map, dataflow = make(Kernel.of(3)), replace(TORCHSPARSE, **settings)
    weight = randn(27, 16, 8, dtype=torch.half)
    wide = randn(kernel_map.n_in * 32 + 1, dtype=torch.half)
    how = kernel_map.layouts(dataflow.needs), kernel_map.n_out, HALF
    for x in (wide[:-1].view(-1, 32)[:, ::2], wide[1:].view(-1, 2, 16)[: kernel_map.n_in, 0]):
        out = dataflow.forward(x, weight, *how)
        assert torch.equal(out, dataflow.forward(x.clone(), weight, *how))
    unaligned = wide[1 : 1 + kernel_map.n_in * 16].view(-1, 16)
    assert unaligned.is_contiguous()
    out = dataflow.forward(unaligned, weight, *how)
    assert torch.equal(out, dataflow.forward(unaligned.clone(), weight, *how))


@pytest.mark.parametrize("dataflow", [TORCHSPARSE, MINUET], ids=lambda d: d.name)
def test_weight_gradients_over_many_rows_lose_none(dataflow: GatherScatter) -> None:
    rows, half = 32017, torch.float16
    sites = torch.stack([torch.arange(rows), *torch.zeros(2, rows, dtype=torch.int64)], 1)
    grid = grid_of_cells(sites).to("cuda")
    made = SortedSearch().build(grid, grid, Kernel.of((3, 1, 1)))  # the identity has every row
    x, grad = randn(rows, 64, dtype=half), randn(rows, 64, dtype=half)
    out = dataflow.weight_grad(x, grad, made.layouts(dataflow.needs_weight_grad), SUMS)
    exact = x.double(), grad.double(), made.layouts(("pairs",))
    expected = Reference().weight_grad(*exact, EXACT)
    for slot in range(3):
        assert relative_rms(out[slot], expected[slot]) < SUMS_ON_TENSOR_CORES
