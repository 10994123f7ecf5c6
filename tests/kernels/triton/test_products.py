"""Every product by kernels against float64, on a GPU, or with TRITON_INTERPRET=1 on a CPU.

Each check covers the output and both gradients, of symmetric maps plain and mirrored. The
interpreter rounds float32 to bfloat16 towards zero: tests/dataflows/test_gpu.py has that dtype.
"""

from dataclasses import replace

import pytest
import torch

from pcnn.dataflows import (
    ConvSpec,
    Dataflow,
    Reference,
    gather_scatter,
    triplets,
    weight_stationary,
)
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Fixed
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import Hybrid
from pcnn.geometry import Kernel, steps
from pcnn.geometry.padding import MapRoom, place_in_torch
from pcnn.geometry.steps import TILE_ROWS
from pcnn.graphs.sizes import padding_of
from pcnn.kernels.conv_spec import Epilogue
from pcnn.kernels.dense_slots import pointwise_product
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.kernels.product_tiles import ProductShape
from pcnn.maps import SortedSearch
from pcnn.maps import steps as device_steps
from pcnn.ops import conformance
from pcnn.ops.conformance import Case, FanIn, moved, random_map
from tests.clouds import surface_grid
from tests.kernels.triton.rows import DEVICE, ImplicitGemm, given, product
from tests.specs import EXACT, spec_of
from tests.steps import leave_room
from tests.tolerance import RELATIVE_RMS, relative_rms

HALF, SINGLE = torch.float16, torch.float32
K3, FLAT, EVEN = Kernel.of(3), Kernel.of((3, 1, 3)), Kernel.of(2, 2)
GEMM = GemmBlocks(64, 16, 16, 1, 4, 3)
WIDE = ImplicitGemm(GemmBlocks(128, 32, 32, 1, 4, 3))
FUSING = [
    ImplicitGemm(GEMM),
    ImplicitGemm(replace(GEMM, split=3), ("fitting_steps",)),
    *(Hybrid(threshold) for threshold in (0, 2, 9)),
    WIDE,
]
WHOLE = Hybrid(0, half=False)
BY_TRIPLETS = [Triplets(sort, 24, 8, 16) for sort in ("k", "i", "j")]
GATHERING = [
    TORCHSPARSE,
    MINUET,
    replace(TORCHSPARSE, locality=False),
    GatherScatter(Fixed(), gather_tile=8, scatter_tile=4),
]
FLOWS = [*FUSING, WHOLE, *BY_TRIPLETS, *GATHERING]


def on_device(*args: object, **settings: object) -> Case:
    return Case(*args, **settings, device=DEVICE)  # type: ignore[arg-type]


CASES = [
    on_device(K3, 1, 3, n=14),
    on_device(FLAT, 16, 20, HALF, n=10),
    on_device(FLAT, 10, 12, groups=2, n=16),
    on_device(Kernel.of(3, 2), 33, 8, n=8),
    on_device(EVEN, 8, 6, HALF, groups=2, transposed=True, n=20),
    on_device(Kernel.of((3, 1, 2)), 4, 5, n=2),
    on_device(K3, 4, 5, n=0),
    on_device(Kernel.of(1), 3, 2, n=60, apart=True),  # rows without a triplet
]
FAN_IN = [
    FanIn(FLAT, 6, 8, groups=2, n=4, device=DEVICE, symmetric=True),
    FanIn(EVEN, 17, 5, HALF, n=4, device=DEVICE, transposed=True),
    FanIn(K3, 4, 5, n=0, device=DEVICE),
]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gather_scatter, triplets, weight_stationary):
        monkeypatch.setattr(module, "kernels_serve", lambda x, dtype: True)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name[:40])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_equal_float64(flow: Dataflow, case: Case) -> None:
    conformance.check_products(flow, case)


@pytest.mark.parametrize(
    "flow", [WIDE, FUSING[2], WHOLE, *BY_TRIPLETS], ids=lambda flow: flow.name[:40]
)
@pytest.mark.parametrize("case", FAN_IN, ids=str)
def test_slots_with_several_inputs(flow: Dataflow, case: Case) -> None:
    conformance.check_products(flow, case)


@pytest.mark.parametrize("flow", [*FUSING, *GATHERING[1:]], ids=lambda flow: flow.name[:40])
@pytest.mark.parametrize(
    ("c_skip", "epilogue", "dtype", "n"),
    [(0, "abr+", HALF, 20), (5, "b", SINGLE, 12), (9, "r+", HALF, 12), (0, "ab", SINGLE, 0)],
)
def test_what_follows_a_product(
    flow: Dataflow, c_skip: int, epilogue: str, dtype: torch.dtype, n: int
) -> None:
    conformance.check_fused(flow, on_device(FLAT, 16, 18, dtype, n=n), c_skip, epilogue)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name[:40])
def test_operands_are_rounded_to_the_compute_dtype_and_sums_once(flow: Dataflow) -> None:
    grid = surface_grid(20).to(DEVICE)
    kernel_map = grid.map_to(grid, FLAT, SortedSearch())
    x = torch.randn(kernel_map.n_in, 8, device=DEVICE)
    weight = torch.randn(9, 8, 6, device=DEVICE)
    wanted = product(Reference(), kernel_map, x.half(), weight.half(), EXACT)
    # the interpreter reads the operands of an implicit GEMM as they are
    operands = (x.half(), weight.half()) if isinstance(flow, ImplicitGemm) else (x, weight)
    for out_dtype in (HALF,) if isinstance(flow, GatherScatter) else (HALF, SINGLE):
        out = product(flow, kernel_map, *operands, spec_of(HALF, out_dtype))
        assert out.dtype == out_dtype
        assert relative_rms(out, wanted) < RELATIVE_RMS[out_dtype]


CUTS = [
    ImplicitGemm(GemmBlocks(128, 32, 16, 4, 2, 4)),
    ImplicitGemm(GemmBlocks(32, 32, 32, 1, 1, 5)),
    ImplicitGemm(GemmBlocks(64, 48, 64, 3, 4, 4)),
    ImplicitGemm(GemmBlocks(16, 16, 32, 1, 4, 3)),
    ImplicitGemm(),
    Triplets("k", 1, 8, 16),
    Triplets("i", 500, 8, 16),
]


@pytest.mark.parametrize("flow", CUTS, ids=lambda flow: flow.name)
def test_every_cut_gives_the_same_sums(flow: Dataflow) -> None:
    for c_in, c_out in ((4, 20), (36, 40)) if flow in CUTS[:4] else ((20, 20),):
        conformance.check_products(flow, on_device(FLAT, c_in, c_out, n=8))


@pytest.mark.parametrize("size", [(3, 1, 5), 5])
def test_sections_of_slots_meet_in_the_output(
    size: int | tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (steps, device_steps):
        monkeypatch.setattr(module, "is_sparse", lambda *_: True)
    monkeypatch.setattr(steps, "WHOLE_SLOTS", 0)
    conformance.check_products(FUSING[1], on_device(Kernel.of(size), 16, 16, n=40))


def test_rows_beyond_a_tile() -> None:
    for flow in (FUSING[0], WIDE):
        for n in (128, 129):
            conformance.check_products(flow, on_device(Kernel.of((1, 1, 3)), 4, 5, n=n))


@pytest.mark.parametrize(("groups", "together"), [(4, 4), (6, 2)])
def test_narrow_groups_are_taken_side_by_side(groups: int, together: int) -> None:
    c_in, c_out = groups * 8, groups * 4
    assert ProductShape.of(torch.empty(8, 8, c_out), ConvSpec(groups)).side_by_side == together
    for flow in (WIDE, FUSING[0]):
        conformance.check_products(flow, on_device(EVEN, c_in, c_out, groups=groups, n=16))
    case = given(random_map(20, 30, 2, 400), c_in, c_out, groups=groups)
    conformance.check_products(ImplicitGemm(), case)


@pytest.mark.parametrize("c_in", [4, 20])
def test_tiles_of_too_many_steps_are_summed_at_the_gather(
    c_in: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "SPARE_STEPS", 0)
    built = moved(random_map(30, 40, 3, 900), DEVICE)
    assert (built.layout("steps")[1] < 0).any()
    for dtype in (SINGLE, HALF):
        for flow in (WIDE, ImplicitGemm(replace(GEMM, split=3))):
            conformance.check_products(flow, given(built, c_in, 20, dtype))
    conformance.check_products(WIDE, given(built, c_in, 20, groups=2))
    conformance.check_fused(WIDE, given(built, c_in, 18), 5, "")


def test_some_tiles_are_listed_and_some_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    c_in = 4
    built = moved(random_map(30, 300, 27, 300), DEVICE)
    ends = built.layout("steps")[2].tolist()
    for room in (ends[0] - 1, ends[0], ends[-1] - 1, ends[-1]):
        leave_room(monkeypatch, built, room)
        again = moved(built, DEVICE)
        assert again.layout("steps")[3].shape[0] == room
        x, weight = (torch.randn(*shape, device=DEVICE) for shape in ((30, c_in), (27, c_in, 5)))
        wanted = product(Reference(), again, x, weight, EXACT)
        out = product(WIDE, again, x, weight, spec_of(SINGLE))
        assert relative_rms(out, wanted) < RELATIVE_RMS[SINGLE], room


def test_lists_in_memory_of_fixed_size() -> None:
    """Spare entries are not read: they name rows of NaN."""
    built = moved(random_map(30, 140, 9, 400), DEVICE)
    room = MapRoom(50, 2 * TILE_ROWS, 700)

    def lists(names: tuple[str, ...]) -> list[torch.Tensor]:
        found = []
        for name in names:
            layout, padding = built.layout(name), padding_of(name)
            own = padding.make(layout, room, built.n_out)
            for tensor in own:
                tensor.fill_(49)
            place_in_torch(padding.parts(own, layout, room, built.n_out))
            found += own
        return found

    def spare(rows: torch.Tensor, number: int) -> torch.Tensor:
        return torch.nn.functional.pad(rows, (0, 0, 0, number - len(rows)), value=torch.nan)

    shapes = (30, 6), (9, 6, 5), (140, 5)
    x, weight, grad = (torch.randn(*shape, device=DEVICE) for shape in shapes)
    wanted = product(Reference(), built, x, weight, EXACT)
    wanted_grad = Reference().weight_grad(x, grad, built.layouts(("pairs",)), EXACT)
    x, grad = spare(x, room.n_in), spare(grad, room.n_out)
    for flow in (WIDE, WHOLE, *BY_TRIPLETS[:2]):
        out = flow.forward(x, weight, lists(flow.needs), room.n_out, spec_of(SINGLE))
        assert relative_rms(out[:140], wanted) < RELATIVE_RMS[SINGLE], flow.name
        assert not out[140:].any(), flow.name
        found = flow.weight_grad(x, grad, lists(flow.needs_weight_grad), spec_of(SINGLE))
        assert relative_rms(found, wanted_grad) < RELATIVE_RMS[SINGLE], flow.name


@pytest.mark.parametrize("flow", FUSING[2:5], ids=lambda flow: flow.name[:40])
@pytest.mark.parametrize("kernel", [FLAT, EVEN], ids=str)
def test_rows_and_pairs_behind_those_that_count(flow: Dataflow, kernel: Kernel) -> None:
    """Spare pairs name rows of NaN, and spare rows of the table are empty or not even read."""
    grid = surface_grid(30).to(DEVICE)
    built = grid.map_to(grid.strided(kernel), kernel, SortedSearch())
    n_in, n_out = grid.rows, built.n_out
    x = torch.randn(n_in, 6, device=DEVICE)
    weight = torch.randn(kernel.volume, 6, 5, device=DEVICE)
    wanted = product(Reference(), built, x, weight, EXACT)
    *table, inputs, outputs, counts = built.layouts(flow.needs)[:5]
    sparse = built.layouts(flow.needs)[5:]
    inputs, outputs = (torch.nn.functional.pad(t, (0, 9), value=n_in) for t in (inputs, outputs))
    near = [torch.nn.functional.pad(t, (0, 0, 0, 60), value=-1) for t in table[:1]]
    for rows in near:
        rows[n_out + 40 :] = 1 << 30  # beyond every tile with a row that counts
    layouts = [*near, *table[1:], inputs, outputs, counts, *sparse]
    x = torch.nn.functional.pad(x, (0, 0, 0, 60), value=torch.nan)
    count = torch.tensor([0, n_out], dtype=torch.int32, device=DEVICE)[1:]
    out = flow.forward(x, weight, layouts, n_out + 60, spec_of(SINGLE, rows=count))
    assert relative_rms(out[:n_out], wanted) < RELATIVE_RMS[SINGLE]


def test_names_tell_settings_apart() -> None:
    assert len({flow.name for flow in FLOWS}) == len(FLOWS)
    assert all(flow.name.isidentifier() for flow in FLOWS)


@pytest.mark.parametrize(("n", "c_in", "c_skip", "c_out"), [(0, 4, 4, 4), (130, 36, 5, 96)])
def test_pointwise_layers_of_two_sources_are_one_pass(
    n: int, c_in: int, c_skip: int, c_out: int
) -> None:
    x, skip = torch.randn(n, c_in + c_skip, device=DEVICE).half().split([c_in, c_skip], 1)
    weight = torch.randn(1, c_in + c_skip, c_out, device=DEVICE).half()
    scale, shift = torch.rand(2, c_out, device=DEVICE)
    residual = torch.randn(n, c_out, device=DEVICE).half()
    spec = ConvSpec(
        compute_dtype=HALF,
        out_dtype=HALF,
        epilogue=Epilogue(scale, shift, residual, True),
        skip=skip,
    )
    out = pointwise_product(x, weight, spec)
    sums = torch.cat((x, skip), 1).double() @ weight[0].double()
    wanted = (sums * scale + shift + residual).relu()
    assert out.shape == (n, c_out)
    assert relative_rms(out, wanted) < RELATIVE_RMS[HALF] or n == 0
