"""Weight-stationary and hybrid dataflows at the size of scans; small ones: tests/kernels/triton."""

from typing import Any

import pytest
import torch

from pcnn.dataflows import Dataflow, Reference
from pcnn.geometry import Kernel, KernelMap, VoxelGrid
from pcnn.maps import ZDelta
from tests.clouds import surface_grid
from tests.specs import EXACT, spec_of
from tests.tolerance import RELATIVE_RMS, relative_rms

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def grid() -> VoxelGrid:
    return surface_grid(100_000, batch_size=2).to("cuda")


def flows() -> list[Dataflow]:
    from pcnn.dataflows.hybrid import Hybrid
    from pcnn.dataflows.weight_stationary import WeightStationary

    whole = WeightStationary(half=False)
    return [WeightStationary(), whole, Hybrid(1), Hybrid(2), Hybrid(3), Hybrid(99)]


def make(grid: VoxelGrid, kernel: Kernel, product: str = "table") -> KernelMap:
    target = grid.strided(kernel)
    found = ZDelta(product=product).build(grid, target, kernel)
    found.edges.layouts["slot_norms", False] = (torch.tensor(kernel.norms),)
    return found


def arguments(kernel_map: KernelMap, flow: Dataflow, x: Any, weight: Any) -> tuple[Any, ...]:
    layouts = [tensor for name in flow.needs for tensor in kernel_map.layout(name)]
    return x, weight, layouts, kernel_map.n_out, spec_of(x.dtype)


@pytest.mark.parametrize("kernel", [Kernel.of(3), Kernel.of(5), Kernel.of(2, 2)], ids=str)
@pytest.mark.parametrize("channels", [(4, 32), (64, 64), (96, 128), (128, 256)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_values(
    grid: VoxelGrid, kernel: Kernel, channels: tuple[int, int], dtype: torch.dtype
) -> None:
    kernel_map = make(grid, kernel)
    x = torch.randn(kernel_map.n_in, channels[0], device="cuda").to(dtype)
    weight = torch.randn(kernel.volume, *channels, device="cuda").to(dtype)
    pairs = kernel_map.layout("pairs")
    wanted = Reference().forward(x.double(), weight.double(), pairs, kernel_map.n_out, EXACT)
    for flow in flows():
        out = flow.forward(*arguments(kernel_map, flow, x, weight))
        assert relative_rms(out, wanted) < RELATIVE_RMS[dtype], flow.name


def test_maps_stored_in_part_give_equal_values(grid: VoxelGrid) -> None:
    kernel = Kernel.of(5)
    x = torch.randn(grid.rows, 32, device="cuda")
    weight = torch.randn(125, 32, 48, device="cuda")
    for product, flow in (("half_pairs", flows()[0]), ("hybrid:2", flows()[3])):
        stored = flow.forward(*arguments(make(grid, kernel, product), flow, x, weight))
        derived = flow.forward(*arguments(make(grid, kernel), flow, x, weight))
        torch.testing.assert_close(stored, derived, rtol=1e-4, atol=1e-4)


def test_waits_for_nothing_and_can_be_captured(grid: VoxelGrid) -> None:
    kernel_map = make(grid, Kernel.of(3))
    x = torch.randn(grid.rows, 64, device="cuda", dtype=torch.float16)
    weight = torch.randn(27, 64, 64, device="cuda", dtype=torch.float16)
    for flow in flows():
        call = arguments(kernel_map, flow, x, weight)
        wanted = flow.forward(*call)
        torch.cuda.set_sync_debug_mode("error")
        try:
            flow.forward(*call)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = flow.forward(*call)
        out.fill_(float("nan"))
        graph.replay()
        torch.testing.assert_close(out, wanted, rtol=1e-2, atol=1e-2)


def test_features_beyond_two_to_the_thirty_one() -> None:
    rows, channels = (1 << 31) // 128 + 4096, 128  # 4.3 GB of features, 8.6 GB of sums
    last = torch.arange(rows - 1000, rows, dtype=torch.int32, device="cuda")
    offsets = torch.tensor([0, 1000])
    kernel_map = KernelMap.from_pairs(last, last, offsets, rows, rows)
    x = torch.zeros(rows, channels, dtype=torch.float16, device="cuda")
    x[-1000:] = torch.randn(1000, channels, device="cuda")
    weight = torch.randn(1, channels, channels, dtype=torch.float16, device="cuda")
    flow = flows()[1]
    out = flow.forward(*arguments(kernel_map, flow, x, weight))
    assert relative_rms(out[-1000:], x[-1000:].double() @ weight[0].double()) < 5e-4
    assert not out[:-1000].any()
