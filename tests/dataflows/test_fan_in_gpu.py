"""CUDA dataflows on maps with several inputs per slot, against float64."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pcnn.dataflows import Blocked, Dataflow, Reference
from pcnn.geometry import Kernel
from pcnn.ops import conformance
from pcnn.ops.conformance_cases import FanIn
from tests.engines import CUDA_SEVERAL_PER_SLOT

pytestmark = pytest.mark.gpu

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
K3 = Kernel.of(3)


def cases() -> Iterator[FanIn]:
    """One setting at a time varied."""
    for dtype in (HALF, BRAIN, SINGLE):
        for c_in, c_out in ((1, 3), (16, 16), (33, 96), (64, 128)):
            yield FanIn(K3, c_in, c_out, dtype, n=3000, device="cuda", symmetric=True)
        yield FanIn(K3, 32, 32, dtype, 2, n=3000, device="cuda")
    for kernel in (Kernel.of(1), Kernel.of(2, 2), Kernel.of((1, 1, 3)), Kernel.of(5)):
        for transposed in (False, True):
            yield FanIn(kernel, 16, 32, HALF, transposed=transposed, n=3000, device="cuda")
    for n in (0, 1, 2, 127, 128, 129):
        yield FanIn(K3, 16, 32, HALF, n=n, device="cuda", symmetric=True)
    yield FanIn(K3, 64, 64, HALF, n=100_000, device="cuda", symmetric=True)


dataflows = pytest.mark.parametrize("dataflow", CUDA_SEVERAL_PER_SLOT, ids=lambda d: d.name)


@dataflows
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_products_equal_float64(dataflow: Dataflow, case: FanIn) -> None:
    conformance.check_products(dataflow, case)


@pytest.mark.parametrize(
    "dataflow", [d for d in CUDA_SEVERAL_PER_SLOT if d.fuses], ids=lambda d: d.name
)
@pytest.mark.parametrize("epilogue", ["", "abr+"])
@pytest.mark.parametrize(("c_in", "c_skip"), [(32, 0), (16, 32), (3, 5)])
def test_what_follows_a_product(dataflow: Dataflow, epilogue: str, c_in: int, c_skip: int) -> None:
    for dtype in (HALF, SINGLE):
        case = FanIn(K3, c_in, 64, dtype, n=3000, device="cuda")
        conformance.check_fused(dataflow, case, c_skip, epilogue)


@pytest.mark.parametrize("dtype", [HALF, SINGLE, torch.float64], ids=str)
@pytest.mark.parametrize(
    "dataflow",
    [d for d in (Reference(), Blocked(), *CUDA_SEVERAL_PER_SLOT) if d.deterministic],
    ids=lambda d: d.name,
)
def test_two_runs_give_identical_bits(dataflow: Dataflow, dtype: torch.dtype) -> None:
    case = FanIn(K3, 64, 64, dtype, n=20_000, device="cuda", symmetric=True)
    conformance.check_repeats(dataflow, case)
