import gc
import itertools
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.dataflows import Blocked, Dataflow, Epilogue, Reference
from pcnn.geometry import Kernel, KernelMap, layouts
from pcnn.maps import SortedSearch
from pcnn.ops import convolution
from pcnn.ops.conformance import random_map
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS, SEVERAL_PER_SLOT
from tests.tolerance import RELATIVE_RMS, relative_rms

CASES = {
    "submanifold": (Kernel.of(3), 1, False),
    "strided": (Kernel.of(3, 2), 1, False),
    "transposed": (Kernel.of(2, 2), 1, True),
    "mirrored": (Kernel.of(3), 1, True),
    "grouped": (Kernel.of((1, 3, 2)), 2, False),
    "grouped_transposed": (Kernel.of(3, 2), 2, True),
    "several a slot": (None, 1, False),
    "several a slot, grouped, transposed": (None, 2, True),
}
#: The reference in every case, each other dataflow in one case it serves.
DERIVED = [
    *((Reference(), name) for name in CASES),
    *zip(DATAFLOWS[1:], itertools.cycle(list(CASES)[:6]), strict=False),
    *zip(SEVERAL_PER_SLOT[1:], itertools.cycle(list(CASES)[6:]), strict=False),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 5)


def make(kernel: Kernel | None, transposed: bool, n: int = 6) -> KernelMap:
    if kernel is None:
        kernel_map = random_map(6, 6, 3, 20, symmetric=True)
    else:
        grid = surface_grid(n, batch_size=2)
        kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


def inputs(kernel_map: KernelMap, groups: int, c_in: int = 4, c_out: int = 2) -> list[torch.Tensor]:
    shapes = [(kernel_map.n_in, c_in), (kernel_map.volume, c_in // groups, c_out)]
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize(("dataflow", "case"), DERIVED, ids=lambda v: getattr(v, "name", v))
def test_first_and_second_derivatives(dataflow: Dataflow, case: str) -> None:
    kernel, groups, transposed = CASES[case]
    kernel_map = make(kernel, transposed)
    tensors = inputs(kernel_map, groups)

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return convolution(x, weight, kernel_map, dataflow, groups=groups)

    # each product of every dataflow is held to the reference's by the checks of conformance
    projected = dataflow != Reference()
    assert gradcheck(run, tensors, fast_mode=projected)
    assert gradgradcheck(run, tensors, fast_mode=projected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_compute_dtype_rounds_operands_and_leaves_gradients_in_their_own(
    dtype: torch.dtype,
) -> None:
    kernel_map = make(Kernel.of(3), False, n=200)
    x = torch.randn(kernel_map.n_in, 8, requires_grad=True)
    weight = torch.randn(27, 8, 8, requires_grad=True)
    out = convolution(x, weight, kernel_map, Reference(), compute_dtype=dtype)
    out.float().sum().backward()
    assert out.dtype == dtype
    assert x.grad.dtype == weight.grad.dtype == torch.float32
    rounded = (tensor.detach().to(dtype).double() for tensor in (x, weight))
    exact = convolution(*rounded, kernel_map, Reference())
    assert relative_rms(out, exact) < RELATIVE_RMS[dtype]


def test_nothing_is_built_in_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_map = make(Kernel.of(3, 2), False)
    x, weight = inputs(kernel_map, 1)
    out = convolution(x, weight, kernel_map, DATAFLOWS[-1])
    monkeypatch.setattr(KernelMap, "layout", lambda self, name: pytest.fail("built a layout"))
    out.sum().backward()


def test_without_gradients_no_transposed_layout_is_built() -> None:
    kernel_map = make(Kernel.of(3, 2), False)
    x, weight = inputs(kernel_map, 1)
    with torch.no_grad():
        free = convolution(x, weight, kernel_map, DATAFLOWS[-1])
    assert not any(flipped for _, flipped in kernel_map.edges.layouts)
    tracked = convolution(x, weight, kernel_map, DATAFLOWS[-1])
    assert torch.equal(free, tracked)


def test_a_step_leaves_no_garbage() -> None:
    kernel_map = make(Kernel.of(3), False)
    alive = weakref.ref(kernel_map)
    x, weight = inputs(kernel_map, 1)
    gc.disable()
    try:
        convolution(x, weight, kernel_map, Reference()).sum().backward()
        del kernel_map
        assert alive() is None
    finally:
        gc.enable()


def test_a_symmetric_map_is_read_from_one_side_only() -> None:
    for transposed in (False, True):
        kernel_map = make(Kernel.of(3), transposed)
        x, weight = inputs(kernel_map, 1)
        convolution(x, weight, kernel_map, Blocked()).sum().backward()
        assert {flipped for _, flipped in kernel_map.edges.layouts} == {False}


@dataclass(frozen=True)
class Unfused(Blocked):
    """A dataflow that takes neither a skip connection nor an epilogue."""

    name: str = "unfused"
    fuses: bool = False

    def forward(self, *args: Any) -> torch.Tensor:
        assert args[-1].epilogue is args[-1].skip is None
        return super().forward(*args)


@pytest.mark.parametrize(
    ("transposed", "dtype", "c_skip"),
    [(False, torch.float64, 3), (True, torch.float16, 0), (True, torch.bfloat16, 3)],
)
def test_what_follows_a_product_is_the_same_fused_or_not(
    transposed: bool, dtype: torch.dtype, c_skip: int
) -> None:
    kernel_map = make(Kernel.of(3), transposed, n=200)
    x = torch.randn(kernel_map.n_in, 4, dtype=dtype)
    skip = torch.randn(kernel_map.n_in, c_skip, dtype=dtype) if c_skip else None
    weight = torch.randn(27, 4 + c_skip, 6, dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    residual = torch.randn(kernel_map.n_out, 6, dtype=dtype)
    epilogue = Epilogue(torch.randn(6, dtype=wide), torch.randn(6, dtype=wide), residual, True)
    outs = [
        convolution(x, weight, kernel_map, flow, skip=skip, epilogue=epilogue)
        for flow in (Blocked(), Unfused())
    ]
    assert outs[0].dtype == outs[1].dtype == dtype
    assert torch.equal(*outs)
    # rounded once, so closer than the separate operations are
    joined = x if skip is None else torch.cat([x, skip], 1)
    product = convolution(joined.double(), weight.double(), kernel_map, Reference())
    exact = Epilogue(epilogue.scale, epilogue.shift, residual, True).apply(product)
    assert relative_rms(outs[0], exact) < RELATIVE_RMS[dtype]


@pytest.mark.parametrize("which", ["x", "weight", "skip", "shift"])
def test_an_epilogue_does_not_lose_gradients(which: str) -> None:
    kernel_map = make(Kernel.of(3), False)
    tensors = {
        "x": torch.randn(kernel_map.n_in, 4),
        "weight": torch.randn(27, 6, 2),
        "skip": torch.randn(kernel_map.n_in, 2),
        "shift": torch.randn(2),
    }
    tensors[which].requires_grad_()

    def call() -> torch.Tensor:
        follows = {"skip": tensors["skip"], "epilogue": Epilogue(shift=tensors["shift"])}
        return convolution(tensors["x"], tensors["weight"], kernel_map, Reference(), **follows)

    with pytest.raises(ValueError, match="for inference"):
        call()
    with torch.no_grad():
        assert call().shape == (kernel_map.n_out, 2)
