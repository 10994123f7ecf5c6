"""Products of listed triplets, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows import Reference  # noqa: E402
from pcnn.dataflows.triplets import Triplets  # noqa: E402
from pcnn.geometry import KernelMap  # noqa: E402
from pcnn.ops.conformance_cases import moved, random_map  # noqa: E402
from tests.specs import EXACT, spec_of  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
#: bfloat16 is rounded towards zero by the interpreter, so it is checked on a device.
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")
sorts = pytest.mark.parametrize("sort", ["k", "i", "j"])


def small(sort: Any, length: int = 24) -> Triplets:
    return Triplets(sort, length, 8, 16)


def make(n_in: int, n_out: int, volume: int, triplets: int, symmetric: bool = False) -> KernelMap:
    return moved(random_map(n_in, n_out, volume, triplets, symmetric), DEVICE)


def check(
    flow: Triplets,
    kernel_map: KernelMap,
    c_in: int,
    c_out: int,
    dtype: torch.dtype = torch.float32,
    groups: int = 1,
    mirrored: bool = False,
) -> None:
    """The output, the gradient of the features and that of the weights."""
    x = torch.randn(kernel_map.n_in, c_in, device=DEVICE).to(dtype)
    y = torch.randn(kernel_map.n_out, c_out, device=DEVICE).to(dtype)
    weight = torch.randn(kernel_map.volume, c_in // groups, c_out, device=DEVICE).to(dtype)
    spec = spec_of(dtype, groups=groups, mirrored=mirrored)
    exact = EXACT._replace(groups=groups, mirrored=mirrored)
    rows: list[Any] = [(kernel_map, x, False), (kernel_map.transpose(), y, True)]
    for view, operand, turned in rows:
        layouts, pairs = view.layouts(flow.needs), view.layouts(("pairs",))
        how = spec._replace(transposed=turned)
        out = flow.by_kernels(operand, weight, layouts, view.n_out, how)
        wide, how = (operand.double(), weight.double()), exact._replace(transposed=turned)
        wanted = Reference().forward(*wide, pairs, view.n_out, how)
        assert out.dtype == dtype
        assert out.shape == wanted.shape
        assert relative_rms(out, wanted) < RELATIVE_RMS[dtype]
    layouts = kernel_map.layouts(flow.needs_weight_grad)
    how = spec._replace(out_dtype=torch.float32)
    grad = flow.weight_grad_by_kernels(x, y, layouts, how)
    pairs = kernel_map.layouts(("pairs",))
    wanted = Reference().weight_grad(x.double(), y.double(), pairs, exact)
    assert grad.dtype == torch.float32
    assert grad.shape == wanted.shape
    assert relative_rms(grad, wanted) < RELATIVE_RMS[torch.float32]


@sorts
@pytest.mark.parametrize(("c_in", "c_out"), [(1, 3), (16, 8), (17, 10)])
def test_any_channels(sort: str, c_in: int, c_out: int) -> None:
    check(small(sort), make(8, 10, 8, 36), c_in, c_out)


@sorts
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(sort: str, dtype: torch.dtype) -> None:
    check(small(sort), make(8, 8, 27, 16, symmetric=True), 16, 8, dtype)


@sorts
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_and_mirrored_slots(sort: str, groups: int) -> None:
    check(small(sort), make(8, 8, 27, 10, symmetric=True), 8, 12, groups=groups, mirrored=True)


@sorts
@pytest.mark.parametrize("length", [1, 500])
def test_any_length(sort: str, length: int) -> None:
    check(small(sort, length), make(8, 10, 8, 36), 4, 5)


@sorts
def test_runs_that_are_empty(sort: str) -> None:
    check(small(sort), make(40, 50, 27, 12), 4, 5)  # most rows and slots have no triplet


@sorts
@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(sort: str, n: int) -> None:
    check(small(sort), make(n, n, 27, 3), 4, 5)
    check(small(sort), make(n, 2, 1, 3), 4, 5)


def test_what_cannot_be_served_is_refused() -> None:
    kernel_map, flow = make(4, 4, 3, 8), small("k")
    x, weight = torch.randn(4, 2, device=DEVICE), torch.randn(3, 2, 2, device=DEVICE)
    layouts = kernel_map.layouts(flow.needs)
    with pytest.raises(ValueError, match="use the dataflow 'reference'"):
        flow.by_kernels(x, weight, layouts, 4, EXACT)
    with pytest.raises(ValueError, match="use the dataflow 'reference'"):
        flow.weight_grad_by_kernels(x, x, layouts, EXACT)
