import gc
import weakref

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from pcnn.dataflows import Dataflow, Reference
from pcnn.geometry import Kernel, KernelMap, layouts
from pcnn.maps import SortedSearch
from pcnn.ops import convolution
from pcnn.ops.library import products
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS
from tests.tolerance import RELATIVE_RMS, relative_rms

CASES = {
    "submanifold": (Kernel.of(3), 1, False),
    "strided": (Kernel.of(3, 2), 1, False),
    "transposed": (Kernel.of(2, 2), 1, True),
    "mirrored": (Kernel.of(3), 1, True),
    "grouped": (Kernel.of((1, 3, 2)), 2, False),
    "grouped_transposed": (Kernel.of(3, 2), 2, True),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 5)


def make(kernel: Kernel, transposed: bool, n: int = 14) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel_map = SortedSearch().build(grid, grid.strided(kernel), kernel)
    return kernel_map.transpose() if transposed else kernel_map


def inputs(kernel_map: KernelMap, groups: int, c_in: int = 4, c_out: int = 2) -> list[torch.Tensor]:
    shapes = [(kernel_map.n_in, c_in), (kernel_map.volume, c_in // groups, c_out)]
    return [torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in shapes]


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
@pytest.mark.parametrize(("kernel", "groups", "transposed"), CASES.values(), ids=CASES.keys())
def test_first_and_second_derivatives(
    dataflow: Dataflow, kernel: Kernel, groups: int, transposed: bool
) -> None:
    kernel_map = make(kernel, transposed)
    tensors = inputs(kernel_map, groups)

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return convolution(x, weight, kernel_map, dataflow, groups=groups)

    assert gradcheck(run, tensors)
    assert gradgradcheck(run, tensors)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", ["mvmr", "vvor"])
def test_operators_keep_the_dispatchers_contract(
    dataflow: Dataflow, name: str, symmetric: bool
) -> None:
    kernel_map = make(Kernel.of(3, 1 if symmetric else 2), False)
    assert kernel_map.symmetric == symmetric
    x, weight = inputs(kernel_map, 1)
    y = torch.randn(kernel_map.n_out, 2, dtype=torch.float64, requires_grad=True)
    others = [] if symmetric else kernel_map.transpose().flat(dataflow.needs)
    lists = kernel_map.flat(dataflow.needs), others, kernel_map.flat(dataflow.needs_vvor)
    double = torch.float64
    arguments = {
        "mvmr": (x, weight, *lists, symmetric, False, kernel_map.n_out, 1, False, double, double),
        "vvor": (x, y, *lists, symmetric, False, kernel_map.volume, 1, double, double),
    }[name]
    torch.library.opcheck(getattr(products(dataflow), name), arguments)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_gradients_of_every_dataflow_equal_the_references(dataflow: Dataflow) -> None:
    kernel_map = make(Kernel.of(3), False, n=300)
    grads = []
    for flow in (Reference(), dataflow):
        torch.manual_seed(1)
        x, weight = inputs(kernel_map, 1, 16, 33)
        convolution(x, weight, kernel_map, flow).square().sum().backward()
        grads.append((x.grad, weight.grad))
    for expected, got in zip(*grads, strict=True):
        assert relative_rms(got, expected) < RELATIVE_RMS[torch.float64]


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
    assert x.grad is not None
    assert weight.grad is not None
    assert x.grad.dtype == weight.grad.dtype == torch.float32
    exact = convolution(
        x.detach().to(dtype).double(),
        weight.detach().to(dtype).double(),
        kernel_map,
        Reference(),
    )
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


@pytest.mark.parametrize(
    ("x", "weight", "groups", "message"),
    [
        ((3, 4), (27, 4, 2), 1, "features must be"),
        ((-1, 4), (26, 4, 2), 1, "weight must be"),
        ((-1, 4), (27, 3, 2), 1, "do not fit"),
        ((-1, 4), (27, 2, 3), 2, "do not fit"),
    ],
)
def test_shapes_that_do_not_fit_are_named(
    x: tuple, weight: tuple, groups: int, message: str
) -> None:
    kernel_map = make(Kernel.of(3), False)
    rows = kernel_map.n_in if x[0] < 0 else x[0]
    with pytest.raises(ValueError, match=message):
        convolution(
            torch.randn(rows, x[1]), torch.randn(weight), kernel_map, Reference(), groups=groups
        )
