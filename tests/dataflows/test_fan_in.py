import pytest
import torch

from pcnn.dataflows import Dataflow, Reference
from pcnn.geometry import Kernel, KernelMap, block_layouts
from pcnn.ops import conformance
from pcnn.ops.conformance_cases import FanIn, random_map
from tests.engines import SEVERAL_PER_SLOT
from tests.specs import EXACT, SINGLE
from tests.tolerance import RELATIVE_RMS, relative_rms

CASES = [
    FanIn(Kernel.of(3), 4, 6, torch.float64, groups=2, n=90),
    FanIn(Kernel.of(3), 4, 6, torch.float64, groups=2, n=90, symmetric=True),
    FanIn(Kernel.of(3), 33, 16, torch.float16, n=150, symmetric=True),
    FanIn(Kernel.of(5), 3, 8, torch.float32, n=150),
    FanIn(Kernel.of((1, 1, 3)), 8, 3, torch.bfloat16, n=150, transposed=True),
    FanIn(Kernel.of(2, 2), 1, 1, torch.float64, n=300, transposed=True),
    FanIn(Kernel.of(1), 2, 3, torch.float64, n=40),
    FanIn(Kernel.of(3), 4, 6, torch.float64, n=1, symmetric=True),
    FanIn(Kernel.of(3), 4, 6, torch.float64, n=0),
]
flows = pytest.mark.parametrize("dataflow", SEVERAL_PER_SLOT, ids=lambda d: d.name)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_layouts, "BLOCK_ROWS", 64)


def products(dataflow: Dataflow, kernel_map: KernelMap) -> tuple[torch.Tensor, ...]:
    case = FanIn(Kernel.of(1), 5, 4, torch.float64)
    random = torch.Generator().manual_seed(3)
    x, y = case.randn(random, kernel_map.n_in, 5), case.randn(random, kernel_map.n_out, 4)
    weight = case.randn(random, kernel_map.volume, 5, 4)
    return conformance.products(dataflow, kernel_map, x, y, weight, case)


def test_the_maps_have_slots_with_several_inputs() -> None:
    for symmetric in (False, True):
        kernel_map = random_map(60, 60, 27, 600, symmetric)
        kernel_map.validate()
        slots = kernel_map.out_index * 27 + kernel_map.slot_index
        assert slots.bincount().max() >= 4
        with pytest.raises(ValueError, match="several inputs"):
            kernel_map.layout("table")
        i, j, k = kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index
        edges = sorted(zip(i.tolist(), j.tolist(), k.tolist(), strict=True))
        mirror = sorted(zip(j.tolist(), i.tolist(), (26 - k).tolist(), strict=True))
        assert (edges == mirror) == symmetric


def test_the_reference_adds_every_input_of_a_slot() -> None:
    kernel_map = random_map(20, 30, 8, 200)
    x, weight = torch.randn(20, 3).double(), torch.randn(8, 3, 2).double()
    expected = torch.zeros(30, 2).double()
    indices = kernel_map.out_index, kernel_map.in_index, kernel_map.slot_index
    for i, j, k in zip(*(index.tolist() for index in indices), strict=True):
        expected[i] += x[j] @ weight[k]
    out = Reference().forward(x, weight, kernel_map.layouts(("pairs",)), 30, EXACT)
    torch.testing.assert_close(out, expected)


@flows
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_mirrored_or_not_equal_the_references(dataflow: Dataflow, case: FanIn) -> None:
    conformance.check_products(dataflow, case)


@flows
def test_gradients_are_the_adjoints_of_the_product(dataflow: Dataflow) -> None:
    for kernel_map in (random_map(50, 70, 27, 500), random_map(60, 60, 27, 300, symmetric=True)):
        exact = products(Reference(), kernel_map)
        for value, expected in zip(products(dataflow, kernel_map), exact, strict=True):
            assert relative_rms(value, expected) < RELATIVE_RMS[torch.float64]


@flows
def test_outputs_without_a_triplet_are_zero(dataflow: Dataflow) -> None:
    out, _, grad_w = products(dataflow, random_map(50, 70, 27, 500))
    assert (out[-1] == 0).all()
    assert (grad_w[1] == 0).all()


@pytest.mark.parametrize(
    "dataflow", [d for d in SEVERAL_PER_SLOT if d.deterministic], ids=lambda d: d.name
)
def test_two_runs_give_identical_bits(dataflow: Dataflow) -> None:
    kernel_map = random_map(200, 200, 27, 2000)
    x, weight = torch.randn(200, 16), torch.randn(27, 16, 16)
    how = kernel_map.layouts(dataflow.needs), 200, SINGLE
    assert torch.equal(dataflow.forward(x, weight, *how), dataflow.forward(x, weight, *how))


@pytest.mark.parametrize("dataflow", [d for d in SEVERAL_PER_SLOT if d.fuses], ids=lambda d: d.name)
@pytest.mark.parametrize("epilogue", ["", "abr+"])
@pytest.mark.parametrize("c_skip", [0, 5])
def test_what_follows_a_product(dataflow: Dataflow, epilogue: str, c_skip: int) -> None:
    for n, symmetric in ((100, True), (100, False), (0, False)):
        case = FanIn(Kernel.of(3), 4, 6, torch.float16, n=n, symmetric=symmetric)
        conformance.check_fused(dataflow, case, c_skip, epilogue)
