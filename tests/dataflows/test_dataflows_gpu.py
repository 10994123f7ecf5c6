"""Every CUDA dataflow against float64, in all directions, dtypes and shapes that layers have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from pcnn.dataflows import Dataflow
from pcnn.geometry import Kernel
from pcnn.kernels.tf32 import tf32_products
from pcnn.ops import conformance
from pcnn.ops.conformance_cases import Case
from tests.engines import CUDA_DATAFLOWS
from tests.specs import spec_of

pytestmark = pytest.mark.gpu

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32
K3, DOWN, EVEN = Kernel.of(3), Kernel.of(3, 2), Kernel.of(2, 2)


def cases() -> Iterator[Case]:
    """One setting at a time varied, so that every kernel variant is compiled once."""
    for dtype in (HALF, BRAIN, SINGLE):
        for c_in, c_out in ((1, 3), (3, 16), (4, 33), (16, 16), (33, 96), (96, 128), (128, 4)):
            yield Case(K3, c_in, c_out, dtype, n=3000)
        for groups in (2, 4):
            yield Case(K3, 32, 16 * groups, dtype, groups, n=3000)
        yield Case(K3, 12, 6, dtype, 3, n=3000)
    for size in range(1, 6):
        for stride in (1, 2, 3):
            for transposed in (False, True):
                yield Case(Kernel.of(size, stride), 16, 32, HALF, transposed=transposed, n=3000)
    for kernel in (K3, DOWN, EVEN, Kernel.of((1, 3, 5)), Kernel.of(3, 1, 2)):
        for dtype in (HALF, SINGLE):
            yield Case(kernel, 64, 64, dtype, transposed=kernel is EVEN, n=20_000)
    for n in (0, 1, 2, 63, 64, 65):
        for kernel in (K3, DOWN, EVEN):
            yield Case(kernel, 16, 32, HALF, n=n)
            yield Case(kernel, 16, 32, HALF, n=n, transposed=True)


def on_gpu(case: Case) -> Case:
    return Case(**{**case.__dict__, "device": "cuda"})


dataflows = pytest.mark.parametrize("dataflow", CUDA_DATAFLOWS, ids=lambda d: d.name)


@dataflows
@pytest.mark.parametrize("case", [on_gpu(case) for case in cases()], ids=str)
def test_products_equal_float64(dataflow: Dataflow, case: Case) -> None:
    conformance.check_products(dataflow, case)


@pytest.mark.parametrize("dataflow", [d for d in CUDA_DATAFLOWS if d.fuses], ids=lambda d: d.name)
@pytest.mark.parametrize("epilogue", ["", "a", "b", "r", "+", "ab+", "abr+"])
@pytest.mark.parametrize(("c_in", "c_skip"), [(32, 0), (16, 32), (96, 33), (3, 5)])
@pytest.mark.parametrize("dtype", [HALF, SINGLE], ids=str)
def test_epilogues_and_skip_connections(
    dataflow: Dataflow, epilogue: str, c_in: int, c_skip: int, dtype: torch.dtype
) -> None:
    for kernel, n in ((K3, 3000), (EVEN, 3000), (K3, 0), (K3, 1)):
        case = Case(kernel, c_in, 48, dtype, n=n, device="cuda")
        conformance.check_fused(dataflow, case, c_skip, epilogue)


@pytest.mark.parametrize(
    "dataflow", [d for d in CUDA_DATAFLOWS if d.deterministic], ids=lambda d: d.name
)
@pytest.mark.parametrize("kernel", [K3, DOWN], ids=["submanifold", "strided"])
def test_two_runs_give_identical_bits(dataflow: Dataflow, kernel: Kernel) -> None:
    conformance.check_repeats(dataflow, Case(kernel, 64, 96, HALF, n=20_000, device="cuda"))


@dataflows
def test_tf32_obeys_torchs_switch(dataflow: Dataflow) -> None:
    case = Case(K3, 64, 64, SINGLE, n=3000, device="cuda")
    example = conformance.Example(case)
    layouts = example.map.layouts(dataflow.needs)
    errors = []
    for allowed in (False, True):
        with tf32_products(allowed):
            spec = spec_of(SINGLE)
            out = dataflow.forward(example.x, example.weight, layouts, example.map.n_out, spec)
        errors.append(conformance.relative_rms(out, example.exact[False][0]))
    assert errors[0] < case.bound(SINGLE)
    assert errors[1] < 1e-3  # ten bits of mantissa


@dataflows
def test_double_precision_is_served_or_refused_by_name(dataflow: Dataflow) -> None:
    case = Case(K3, 8, 8, torch.float64, n=300, device="cuda")
    refusal = ""
    try:
        conformance.check_products(dataflow, case)
    except ValueError as error:
        refusal = str(error)
    assert not refusal or "reference" in refusal
