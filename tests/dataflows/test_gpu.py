"""Dataflows of device kernels against float64, in all that layers differ in, at scans' sizes.

The checks of conformance cover the output and both gradients.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
import torch

from pcnn.dataflows import Blocked, Dataflow, Reference
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import SEPARATE, SYMMETRIC, Adaptive, Fixed, Sorted
from pcnn.dataflows.weight_stationary import WEIGHT_STATIONARY, WHOLE, Hybrid
from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.conv_spec import tf32_products
from pcnn.maps import SortedSearch
from pcnn.ops import conformance
from pcnn.ops.conformance import Case
from tests.clouds import surface_grid
from tests.engines import CUDA_DATAFLOWS, CUDA_SEVERAL_PER_SLOT
from tests.random_maps import FanIn
from tests.specs import spec_of
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms
from tests.waits import nothing_waits

pytestmark = pytest.mark.gpu

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)
FEW = (HALF, SINGLE)
#: Settings that engines do not take.
SETTINGS = [
    MINUET,
    GatherScatter(SYMMETRIC, locality=False),
    GatherScatter(Fixed(), locality=False),
    GatherScatter(SEPARATE, gather_tile=8, scatter_tile=16, streams=3),
    GatherScatter(Adaptive(1)),
    GatherScatter(Sorted(0.3, 3000)),
    *(Hybrid(threshold) for threshold in (1, 3, 99, None)),
]


def cases() -> Iterator[Case]:
    """One setting at a time varied, so that every kernel variant is compiled once."""
    for dtype in (HALF, BRAIN, SINGLE):
        for c_in, c_out in ((1, 3), (4, 33), (16, 16), (33, 96), (96, 128), (128, 4), (64, 256)):
            yield Case(K3, c_in, c_out, dtype, n=3000)
        for groups in (2, 16):
            yield Case(K3, 32, 16 * groups, dtype, groups, n=3000)
        yield Case(K3, 12, 6, dtype, 3, n=3000)
    for size, stride, transposed in product(range(1, 6), (1, 2, 3), (False, True)):
        yield Case(Kernel.of(size, stride), 16, 32, HALF, transposed=transposed, n=3000)
    for kernel, dtype in product((DOWN, EVEN, Kernel.of((1, 3, 5)), Kernel.of(3, 1, 2)), FEW):
        yield Case(kernel, 64, 64, dtype, transposed=kernel is EVEN, n=20_000)
    yield Case(K3, 128, 256, HALF, n=100_000)
    yield Case(Kernel.of(1), 2, 2, HALF, n=5000, scale=40.0)  # gradients beyond float16
    for n, kernel in product((0, 1, 2, 63, 64, 65), (K3, DOWN, EVEN)):
        yield Case(kernel, 16, 32, HALF, n=n, transposed=kernel is EVEN)


def few() -> Iterator[Case]:
    """For settings that differ in how the same kernels are launched."""
    for dtype in (HALF, BRAIN, SINGLE, torch.float64):
        yield Case(K3, 16, 24, dtype, n=20_000)
    yield Case(K3, 33, 20, HALF, n=10_000)
    yield Case(DOWN, 8, 12, HALF, groups=2, n=10_000)
    yield Case(EVEN, 1, 3, SINGLE, n=10_000, transposed=True)
    yield Case(K3, 8, 8, HALF, n=10_000, scale=40.0)


def several() -> Iterator[FanIn]:
    """Maps whose slots hold several inputs."""
    for dtype, (c_in, c_out) in product((HALF, BRAIN, SINGLE), ((1, 3), (33, 96), (64, 128))):
        yield FanIn(K3, c_in, c_out, dtype, n=3000, symmetric=True)
    yield FanIn(K3, 32, 32, HALF, 2, n=3000)
    for kernel, transposed in product((Kernel.of(1), EVEN, Kernel.of(5)), (False, True)):
        yield FanIn(kernel, 16, 32, HALF, transposed=transposed, n=3000)
    for n in (0, 1, 127, 128, 129, 100_000):
        yield FanIn(K3, 16, 32, HALF, n=n, symmetric=True)


def on_gpu(case: Case) -> Case:
    return replace(case, device="cuda")


CHECKED = [
    *((flow, case) for flow in CUDA_DATAFLOWS for case in cases()),
    *((flow, case) for flow in SETTINGS for case in few()),
    *((flow, case) for flow in CUDA_SEVERAL_PER_SLOT for case in several()),
]


@pytest.mark.parametrize(("dataflow", "case"), CHECKED, ids=str)
def test_products_equal_float64(dataflow: Dataflow, case: Case) -> None:
    case = on_gpu(case)
    conformance.check_products(dataflow, case)
    if case.dtype != torch.float64:  # plain torch
        with nothing_waits():
            case.products(dataflow)


@pytest.mark.parametrize("dataflow", [d for d in CUDA_DATAFLOWS if d.fuses], ids=str)
@pytest.mark.parametrize("epilogue", ["", "a", "b", "r", "+", "ab+", "abr+"])
@pytest.mark.parametrize(("c_in", "c_skip"), [(32, 0), (16, 32), (96, 33), (3, 5)])
@pytest.mark.parametrize("dtype", [HALF, SINGLE], ids=str)
def test_epilogues_and_skip_connections(
    dataflow: Dataflow, epilogue: str, c_in: int, c_skip: int, dtype: torch.dtype
) -> None:
    tried = [Case(kernel, c_in, 48, dtype, n=3000) for kernel in (K3, EVEN)]
    tried += [Case(K3, c_in, 48, dtype, n=n) for n in (0, 1)]
    if dataflow in CUDA_SEVERAL_PER_SLOT and epilogue in ("", "abr+"):
        tried.append(FanIn(K3, c_in, 64, dtype, n=3000))
    for case in tried:
        fused = replace(on_gpu(case), c_skip=c_skip, epilogue=epilogue)
        conformance.check_products(dataflow, fused)


@pytest.mark.parametrize(
    "dataflow",
    [d for d in (*CUDA_DATAFLOWS, *SETTINGS, Reference(), Blocked()) if d.deterministic],
    ids=str,
)
def test_two_runs_give_identical_bits(dataflow: Dataflow) -> None:
    tried = [Case(kernel, 64, 96, HALF, n=20_000) for kernel in (K3, DOWN)]
    if dataflow in (Reference(), Blocked(), *CUDA_SEVERAL_PER_SLOT):
        dtypes = HALF, SINGLE, torch.float64
        tried += [FanIn(K3, 64, 64, dtype, n=20_000, symmetric=True) for dtype in dtypes]
    for case in tried:
        conformance.check_repeats(dataflow, on_gpu(case))


@pytest.mark.parametrize("dataflow", CUDA_DATAFLOWS, ids=str)
def test_tf32_obeys_torchs_switch(dataflow: Dataflow) -> None:
    case = Case(K3, 64, 64, SINGLE, n=20_000, device="cuda")
    spec, (x, y, weight) = spec_of(SINGLE), (case.operands[name] for name in ("x", "y", "weight"))
    forward, outer = (case.map.layouts(n) for n in (dataflow.needs, dataflow.needs_weight_grad))
    for allowed in (False, True):
        with tf32_products(allowed):
            outs = [
                dataflow.forward(x, weight, forward, case.map.n_out, spec),
                dataflow.weight_grad(x, y, outer, spec),
            ]
        for out, exact in zip(outs, case.exact[False][::2], strict=True):
            # ten bits of mantissa, as float16
            bound = 2 * RELATIVE_RMS[HALF] if allowed else SUMS_ON_TENSOR_CORES
            assert relative_rms(out, exact) < bound


def made(n: int = 10_000, kernel: Kernel = K3) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to("cuda")
    return grid.map_to(grid.strided(kernel), kernel, SortedSearch())


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(HALF)


@pytest.mark.parametrize("dataflow", [TORCHSPARSE, *SETTINGS, WEIGHT_STATIONARY, WHOLE], ids=str)
def test_a_late_producer_on_another_stream_is_followed(dataflow: Dataflow) -> None:
    built = made()
    ready, weight = half(built.n_in, 32), half(27, 32, 32)
    how = built.layouts(dataflow.needs), built.n_out, spec_of(HALF)
    expected = dataflow.forward(ready, weight, *how)
    late = torch.zeros_like(ready)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        late.copy_(ready)
        out = dataflow.forward(late, weight, *how)
        # memory of the buffers may be taken again at once
        torch.full((built.triplets, 64), float("nan"), device="cuda", dtype=HALF)
    side.synchronize()
    if dataflow.deterministic:
        assert torch.equal(out, expected)
    assert relative_rms(out, expected) < RELATIVE_RMS[HALF]


def test_strided_and_unaligned_features_are_read_rightly() -> None:
    built, dataflow = made(), TORCHSPARSE
    weight, wide = half(27, 16, 8), half(built.n_in * 32 + 1)
    how = built.layouts(dataflow.needs), built.n_out, spec_of(HALF)
    unaligned = wide[1 : 1 + built.n_in * 16].view(-1, 16)
    assert unaligned.is_contiguous()
    for x in (wide[:-1].view(-1, 32)[:, ::2], wide[1:].view(-1, 2, 16)[:, 0], unaligned):
        out = dataflow.forward(x, weight, *how)
        assert torch.equal(out, dataflow.forward(x.clone(), weight, *how))


def test_features_beyond_two_to_the_thirty_one() -> None:
    rows, channels = (1 << 31) // 128 + 4096, 128  # 4.3 GB of features, 8.6 GB of sums
    last = torch.arange(rows - 1000, rows, dtype=torch.int32, device="cuda")
    ends = torch.tensor([0, 1000])
    built = KernelMap.from_pairs(last, last, ends, rows, rows, False, False)
    x, weight = half(1, 1).expand(rows, channels).contiguous().zero_(), half(1, channels, channels)
    x[-1000:] = half(1000, channels)
    flow = WHOLE
    out = flow.forward(x, weight, built.layouts(flow.needs), rows, spec_of(HALF))
    assert relative_rms(out[-1000:], x[-1000:].double() @ weight[0].double()) < 5e-4
    assert not out[:-1000].any()
    del out
    grad = flow.weight_grad(x, x, built.layouts(flow.needs_weight_grad), spec_of(HALF, SINGLE))
    a = x[-1000:].double()
    assert relative_rms(grad[0], a.t() @ a) < SUMS_ON_TENSOR_CORES
