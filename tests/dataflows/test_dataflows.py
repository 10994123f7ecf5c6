import numpy as np
import pytest
import torch

from pcnn.dataflows import Dataflow, Reference
from pcnn.geometry import Kernel, KernelMap, block_layouts
from pcnn.maps import SortedSearch
from pcnn.ops import conformance
from pcnn.ops.conformance_cases import Case
from tests import oracle
from tests.clouds import surface_grid
from tests.engines import DATAFLOWS
from tests.specs import EXACT, SINGLE, spec_of
from tests.tolerance import RELATIVE_RMS, relative_rms

KERNELS = {"submanifold": Kernel.of(3), "strided": Kernel.of(3, 2), "even": Kernel.of(2, 2)}
dataflows = pytest.mark.parametrize("dataflow", DATAFLOWS, ids=lambda d: d.name)


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
    return kernel_map.layouts(dataflow.needs_weight_grad)


def edges_of(kernel_map: KernelMap) -> set[tuple[int, int, int]]:
    columns = (kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index)
    return set(zip(*(c.tolist() for c in columns), strict=True))


@dataflows
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("transposed", [False, True], ids=["map", "transposed_map"])
def test_products_equal_the_oracle(dataflow: Dataflow, kernel: Kernel, transposed: bool) -> None:
    kernel_map = make(150, kernel, transposed)
    edges, tensors = edges_of(kernel_map), layout_list(kernel_map, dataflow)
    backwards = layout_list(kernel_map.transpose(), dataflow)
    for c_in, c_out, groups in ((1, 3, 1), (4, 33, 1), (4, 6, 2)):
        x = torch.randn(kernel_map.n_in, c_in, dtype=torch.float64)
        weight = torch.randn(kernel_map.volume, c_in // groups, c_out, dtype=torch.float64)
        spec = EXACT._replace(groups=groups)
        out = dataflow.forward(x, weight, tensors, kernel_map.n_out, spec)
        expected = oracle.convolution(x.numpy(), weight.numpy(), edges, kernel_map.n_out, groups)
        np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-12)

        # <forward(x, W), y> = <x, forward(y, W transposed) over the transposed map>
        # = <W, weight_grad(x, y)>
        y = torch.randn(kernel_map.n_out, c_out, dtype=torch.float64)
        turned = spec._replace(transposed=True)
        x_like = dataflow.forward(y, weight, backwards, kernel_map.n_in, turned)
        weight_like = dataflow.weight_grad(x, y, outer_list(kernel_map, dataflow), spec)
        assert x_like.shape == x.shape
        assert weight_like.shape == weight.shape
        inner = float((out * y).sum())
        assert float((x_like * x).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)
        assert float((weight_like * weight).sum()) == pytest.approx(inner, rel=1e-11, abs=1e-9)


@pytest.mark.parametrize("dtype", RELATIVE_RMS, ids=str)
@dataflows
def test_rounding_stays_under_the_bound_of_the_dtype(
    dataflow: Dataflow, dtype: torch.dtype
) -> None:
    kernel_map = make(300, Kernel.of(3))
    x, y = torch.randn(kernel_map.n_in, 33), torch.randn(kernel_map.n_out, 20)
    x, y, weight = x.to(dtype), y.to(dtype), torch.randn(27, 33, 20).to(dtype)
    exact, tensors = layout_list(kernel_map, Reference()), layout_list(kernel_map, dataflow)
    out = dataflow.forward(x, weight, tensors, kernel_map.n_out, spec_of(dtype))
    wide = x.double(), weight.double()
    expected = Reference().forward(*wide, exact, kernel_map.n_out, EXACT)
    assert out.dtype == dtype
    assert relative_rms(out, expected) < RELATIVE_RMS[dtype]
    outer = outer_list(kernel_map, dataflow)
    grad = dataflow.weight_grad(x, y, outer, spec_of(dtype, torch.float64))
    expected = Reference().weight_grad(x.double(), y.double(), exact, EXACT)
    sums = torch.promote_types(dtype, torch.float32)
    assert relative_rms(grad, expected) < RELATIVE_RMS[sums]


@dataflows
def test_weight_gradients_beyond_float16_do_not_overflow(dataflow: Dataflow) -> None:
    kernel_map = make(500, Kernel.of(1))
    x = torch.full((kernel_map.n_in, 2), 300.0, dtype=torch.float16)
    spec = spec_of(torch.float16, torch.float32)
    grad = dataflow.weight_grad(x, x, outer_list(kernel_map, dataflow), spec)
    assert float(grad.max()) == pytest.approx(9e4 * kernel_map.n_in)


@dataflows
@pytest.mark.parametrize("n", [0, 1, 65])
def test_small_and_empty_clouds(dataflow: Dataflow, n: int) -> None:
    kernel_map = make(n, Kernel.of(3))
    x, weight = torch.randn(kernel_map.n_in, 4), torch.randn(27, 4, 5)
    tensors, rows = layout_list(kernel_map, dataflow), kernel_map.n_out
    out = dataflow.forward(x, weight, tensors, rows, SINGLE)
    wide = x.double().numpy(), weight.double().numpy()
    expected = oracle.convolution(*wide, edges_of(kernel_map), rows)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-5)
    grad = dataflow.weight_grad(x, out, outer_list(kernel_map, dataflow), SINGLE)
    assert grad.shape == weight.shape


@dataflows
def test_outputs_without_a_triplet_are_zero(dataflow: Dataflow) -> None:
    grid, other = surface_grid(60), surface_grid(60, seed=9)
    kernel_map = grid.map_to(other, Kernel.of(1), SortedSearch())
    lonely = ~torch.isin(torch.arange(other.rows), kernel_map.out_index.long())
    assert lonely.any()
    tensors = layout_list(kernel_map, dataflow)
    x, weight = torch.randn(grid.rows, 3), torch.randn(1, 3, 2)
    out = dataflow.forward(x, weight, tensors, other.rows, SINGLE)
    assert (out[lonely] == 0).all()
    assert out.isfinite().all()


@pytest.mark.parametrize(
    "dataflow", [d for d in DATAFLOWS if d.deterministic], ids=lambda d: d.name
)
def test_two_runs_give_identical_bits(dataflow: Dataflow) -> None:
    conformance.check_repeats(dataflow, Case(Kernel.of(3), 16, 16, n=800))


@dataflows
def test_strided_tensors_are_read_rightly(dataflow: Dataflow) -> None:
    kernel_map = make(200, Kernel.of(3))
    wide, weight = torch.randn(kernel_map.n_in, 8), torch.randn(27, 5, 4)
    x, turned = wide[:, ::2], weight.transpose(1, 2)  # W [K, 4, 5], not contiguous
    how = layout_list(kernel_map, dataflow), kernel_map.n_out, SINGLE
    out = dataflow.forward(x, turned, *how)
    torch.testing.assert_close(out, dataflow.forward(x.contiguous(), turned.contiguous(), *how))


@dataflows
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


@dataflows
def test_a_mirrored_map_is_the_transposed_one(dataflow: Dataflow) -> None:
    kernel_map = make(300, Kernel.of(3))
    x, weight = torch.randn(kernel_map.n_in, 3), torch.randn(27, 3, 5)
    y, view = torch.randn(kernel_map.n_out, 5), kernel_map.transpose()
    pairs, mirrored = view.layouts(("pairs",)), EXACT._replace(mirrored=True)
    expected = Reference().forward(x, weight, pairs, view.n_out, EXACT)
    out = dataflow.forward(x, weight, layout_list(kernel_map, dataflow), view.n_out, mirrored)
    assert relative_rms(out, expected) < RELATIVE_RMS[torch.float64]
    expected = Reference().weight_grad(x, y, pairs, EXACT)
    grad = dataflow.weight_grad(x, y, outer_list(kernel_map, dataflow), mirrored)
    assert relative_rms(grad, expected) < RELATIVE_RMS[torch.float64]


@pytest.mark.parametrize("dataflow", [d for d in DATAFLOWS if d.fuses], ids=lambda d: d.name)
@pytest.mark.parametrize("epilogue", ["", "a", "b", "r", "+", "abr+"])
@pytest.mark.parametrize("c_skip", [0, 5])
def test_epilogues_and_skip_connections(dataflow: Dataflow, epilogue: str, c_skip: int) -> None:
    for kernel, n, dtype in (
        (Kernel.of(3), 200, torch.float16),
        (Kernel.of(2, 2), 200, torch.float64),
        (Kernel.of(3), 0, torch.float64),
    ):
        conformance.check_fused(dataflow, Case(kernel, 4, 6, dtype, n=n), c_skip, epilogue)
