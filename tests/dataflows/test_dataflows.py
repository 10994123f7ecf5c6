from typing import Any

import numpy as np
import pytest
import torch

from pcnn.dataflows import Dataflow, Reference
from pcnn.geometry import Kernel, KernelMap, block_layouts
from pcnn.maps import SortedSearch
from pcnn.ops import conformance
from pcnn.ops.conformance import Case
from tests import oracle
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS
from tests.tolerance import RELATIVE_RMS, relative_rms

KERNELS = {"submanifold": Kernel.of(3), "strided": Kernel.of(3, 2), "even": Kernel.of(2, 2)}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layouts, "BLOCK_ROWS", 64)


def make(n: int, kernel: Kernel, transposed: bool = False) -> KernelMap:
    grid = surface_grid(n, batch_size=2)
    kernel_map = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    return kernel_map.transpose() if transposed else kernel_map


def layout_list(kernel_map: KernelMap, dataflow: Dataflow) -> list[torch.Tensor]:
    return kernel_map.layouts(dataflow.needs)


def outer_list(kernel_map: KernelMap, dataflow: Dataflow) -> list[torch.Tensor]:
    return kernel_map.layouts(dataflow.needs_vvor)


def numpy_of(x: torch.Tensor) -> np.ndarray:
    return x.double().numpy()


def edges_of(kernel_map: KernelMap) -> set[tuple[int, int, int]]:
    columns = (kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index)
    return set(zip(*(c.tolist() for c in columns), strict=True))


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("transposed", [False, True], ids=["map", "transposed_map"])
@pytest.mark.parametrize(
    ("c_in", "c_out", "groups"), [(1, 3, 1), (3, 1, 1), (4, 33, 1), (16, 96, 1), (4, 6, 2)]
)
def test_products_equal_the_oracle(
    dataflow: Dataflow, kernel: Kernel, transposed: bool, c_in: int, c_out: int, groups: int
) -> None:
    kernel_map = make(300, kernel, transposed)
    x = torch.randn(kernel_map.n_in, c_in, dtype=torch.float64)
    weight = torch.randn(kernel_map.volume, c_in // groups, c_out, dtype=torch.float64)
    tensors = layout_list(kernel_map, dataflow)
    double = (torch.float64, torch.float64)
    out = dataflow.mvmr(x, weight, tensors, kernel_map.n_out, groups, False, *double)
    edges = edges_of(kernel_map)
    expected = oracle.convolution(x.numpy(), weight.numpy(), edges, kernel_map.n_out, groups)
    np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-12)

    # <mvmr(x, W), y> = <x, mvmr(y, W transposed) on the transposed map> = <W, vvor(x, y)>
    y = torch.randn(kernel_map.n_out, c_out, dtype=torch.float64)
    backwards = layout_list(kernel_map.transpose(), dataflow)
    x_like = dataflow.mvmr(y, weight, backwards, kernel_map.n_in, groups, True, *double)
    weight_like = dataflow.vvor(x, y, outer_list(kernel_map, dataflow), groups, *double)
    assert x_like.shape == x.shape
    assert weight_like.shape == weight.shape
    inner = float((out * y).sum())
    assert float((x_like * x).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)
    assert float((weight_like * weight).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_rounding_stays_under_the_bound_of_the_dtype(
    dataflow: Dataflow, dtype: torch.dtype
) -> None:
    kernel_map = make(500, Kernel.of(3))
    x, y = torch.randn(kernel_map.n_in, 33), torch.randn(kernel_map.n_out, 20)
    x, y, weight = x.to(dtype), y.to(dtype), torch.randn(27, 33, 20).to(dtype)
    tensors = layout_list(kernel_map, dataflow)
    exact = layout_list(kernel_map, Reference())
    double: tuple[Any, ...] = (torch.float64, torch.float64)
    out = dataflow.mvmr(x, weight, tensors, kernel_map.n_out, 1, False, dtype, dtype)
    expected = Reference().mvmr(
        x.double(), weight.double(), exact, kernel_map.n_out, 1, False, *double
    )
    assert out.dtype == dtype
    assert relative_rms(out, expected) < RELATIVE_RMS[dtype]
    grad = dataflow.vvor(x, y, outer_list(kernel_map, dataflow), 1, dtype, torch.float64)
    expected = Reference().vvor(x.double(), y.double(), exact, 1, *double)
    assert (
        relative_rms(grad, expected) < RELATIVE_RMS[torch.float32 if dtype.itemsize < 8 else dtype]
    )


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_weight_gradients_beyond_float16_do_not_overflow(dataflow: Dataflow) -> None:
    kernel_map = make(500, Kernel.of(1))
    x = torch.full((kernel_map.n_in, 2), 300.0, dtype=torch.float16)
    grad = dataflow.vvor(x, x, outer_list(kernel_map, dataflow), 1, torch.float16, torch.float32)
    assert float(grad.max()) == pytest.approx(9e4 * kernel_map.n_in)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [0, 1, 2, 65])
def test_small_and_empty_clouds(dataflow: Dataflow, n: int) -> None:
    kernel_map = make(n, Kernel.of(3))
    x, weight = torch.randn(kernel_map.n_in, 4), torch.randn(27, 4, 5)
    tensors = layout_list(kernel_map, dataflow)
    single = (torch.float32, torch.float32)
    out = dataflow.mvmr(x, weight, tensors, kernel_map.n_out, 1, False, *single)
    expected = oracle.convolution(
        numpy_of(x), numpy_of(weight), edges_of(kernel_map), kernel_map.n_out
    )
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert dataflow.vvor(x, out, outer_list(kernel_map, dataflow), 1, *single).shape == weight.shape


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_outputs_without_a_triplet_are_zero(dataflow: Dataflow) -> None:
    grid, other = surface_grid(60), surface_grid(60, seed=9)
    kernel_map = grid.map_to(other, Kernel.of(1), SortedSearch())
    lonely = ~torch.isin(torch.arange(other.rows), kernel_map.out_index.long())
    assert lonely.any()
    out = dataflow.mvmr(
        torch.randn(grid.rows, 3),
        torch.randn(1, 3, 2),
        layout_list(kernel_map, dataflow),
        other.rows,
        1,
        False,
        torch.float32,
        torch.float32,
    )
    assert (out[lonely] == 0).all()
    assert out.isfinite().all()


@pytest.mark.parametrize(
    "dataflow", [d for d in DATAFLOWS if d.deterministic], ids=lambda d: d.name
)
def test_two_runs_give_identical_bits(dataflow: Dataflow) -> None:
    kernel_map = make(800, Kernel.of(3))
    x, weight = torch.randn(kernel_map.n_in, 16), torch.randn(27, 16, 16)
    tensors = layout_list(kernel_map, dataflow)
    single = (torch.float32, torch.float32)
    runs = [
        dataflow.mvmr(x, weight, tensors, kernel_map.n_out, 1, False, *single) for _ in range(2)
    ]
    assert torch.equal(*runs)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_strided_tensors_are_read_rightly(dataflow: Dataflow) -> None:
    kernel_map = make(200, Kernel.of(3))
    wide, weight = torch.randn(kernel_map.n_in, 8), torch.randn(27, 5, 4)
    x, turned = wide[:, ::2], weight.transpose(1, 2)  # W [K, 4, 5], not contiguous
    tensors = layout_list(kernel_map, dataflow)
    single = (torch.float32, torch.float32)
    out = dataflow.mvmr(x, turned, tensors, kernel_map.n_out, 1, False, *single)
    plain = dataflow.mvmr(
        x.contiguous(), turned.contiguous(), tensors, kernel_map.n_out, 1, False, *single
    )
    torch.testing.assert_close(out, plain)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "case",
    [
        Case(Kernel.of(3), 4, 6, torch.float64, groups=2),
        Case(Kernel.of(3), 33, 16, torch.float16),
        Case(Kernel.of(5), 3, 8, torch.float32),
        Case(Kernel.of((1, 3, 5)), 8, 3, torch.bfloat16, transposed=True),
        Case(Kernel.of(2, 2), 4, 4, torch.float64, transposed=True),
        Case(Kernel.of(3), 4, 6, torch.float64, n=1),
        Case(Kernel.of(3), 4, 6, torch.float64, n=0),
    ],
    ids=str,
)
def test_products_mirrored_or_not_equal_the_references(dataflow: Dataflow, case: Case) -> None:
    conformance.check_products(dataflow, case)


@pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)
def test_a_mirrored_map_is_the_transposed_one(dataflow: Dataflow) -> None:
    kernel_map = make(300, Kernel.of(3))
    x, weight = torch.randn(kernel_map.n_in, 3), torch.randn(27, 3, 5)
    y = torch.randn(kernel_map.n_out, 5)
    exact = torch.float64, torch.float64
    view = kernel_map.transpose()
    expected = Reference().mvmr(x, weight, view.layouts(("pairs",)), view.n_out, 1, False, *exact)
    tensors = layout_list(kernel_map, dataflow)
    out = dataflow.mvmr(x, weight, tensors, view.n_out, 1, False, *exact, mirrored=True)
    assert relative_rms(out, expected) < RELATIVE_RMS[torch.float64]
    expected = Reference().vvor(x, y, view.layouts(("pairs",)), 1, *exact)
    grad = dataflow.vvor(x, y, outer_list(kernel_map, dataflow), 1, *exact, mirrored=True)
    assert relative_rms(grad, expected) < RELATIVE_RMS[torch.float64]


@pytest.mark.parametrize("dataflow", [d for d in DATAFLOWS if d.fuses], ids=lambda d: d.name)
@pytest.mark.parametrize("epilogue", ["", "a", "b", "r", "+", "abr+"])
@pytest.mark.parametrize("c_second", [0, 5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_what_follows_a_product(
    dataflow: Dataflow, epilogue: str, c_second: int, dtype: torch.dtype
) -> None:
    for kernel, n in ((Kernel.of(3), 200), (Kernel.of(2, 2), 200), (Kernel.of(3), 0)):
        case = Case(kernel, 4, 6, dtype, n=n)
        conformance.check_fused(dataflow, case, c_second, epilogue)
