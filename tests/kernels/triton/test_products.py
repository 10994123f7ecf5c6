"""Every product by kernels against float64, on a GPU, or with TRITON_INTERPRET=1 on a CPU.

Each check covers the output and both gradients, of symmetric maps plain and mirrored. The
interpreter rounds float32 to bfloat16 towards zero: tests/dataflows/test_gpu.py has that dtype.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pcnn.dataflows import (
    ConvSpec,
    Dataflow,
    OutputStationary,
    Reference,
    gather_scatter,
    gemm,
    triplets,
    weight_stationary,
)
from pcnn.dataflows.gather_scatter import MINUET, TORCHSPARSE, GatherScatter
from pcnn.dataflows.grouping import Fixed
from pcnn.dataflows.triplets import Triplets
from pcnn.dataflows.weight_stationary import Hybrid
from pcnn.geometry import Kernel, KernelMap, tile_steps
from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.graphs.fixed_input import MapRoom, memory_of, paddings, parts_of
from pcnn.kernels.conv_spec import Epilogue
from pcnn.kernels.dense_slots import pointwise_product
from pcnn.kernels.gemm_blocks import GemmBlocks
from pcnn.maps import SortedSearch
from pcnn.maps import tile_steps as device_steps
from pcnn.maps.place import place
from pcnn.ops import conformance
from pcnn.ops.conformance import Case
from tests.clouds import surface_grid
from tests.kernels.triton.conftest import DEVICE
from tests.random_maps import FanIn, random_map
from tests.specs import EXACT, spec_of
from tests.steps import leave_room
from tests.tolerance import RELATIVE_RMS, relative_rms

HALF, SINGLE = torch.float16, torch.float32
K3, FLAT, EVEN = Kernel.of(3), Kernel.of((3, 1, 3)), Kernel.of(2, 2)
GEMM = GemmBlocks(64, 16, 16, 1, 4, 3)
WIDE = OutputStationary(GemmBlocks(128, 48, 32, 1, 4, 3))
SECTIONS = OutputStationary(replace(GEMM, split=3), sections=True)
HYBRIDS = [Hybrid(threshold) for threshold in (0, 2, 9)]
FUSING = [OutputStationary(GEMM), SECTIONS, WIDE, *HYBRIDS]
WHOLE = Hybrid(0, half=False)
BY_TRIPLETS = [Triplets(sort, 24, 8, 16) for sort in ("k", "i", "j")]
GATHERING = [
    TORCHSPARSE,
    MINUET,
    GatherScatter(Fixed(), locality=False, gather_tile=8, scatter_tile=4),
]
FLOWS = [*FUSING, WHOLE, *BY_TRIPLETS, *GATHERING]


def on_device(*args: object, **settings: object) -> Case:
    return Case(*args, **settings, device=DEVICE)  # type: ignore[arg-type]


CASES = [
    on_device(K3, 1, 3, n=14),
    on_device(FLAT, 32, 24, groups=4, n=10),  # narrow groups are taken side by side
    on_device(EVEN, 34, 6, HALF, groups=2, transposed=True, n=20),
    on_device(K3, 4, 5, n=0),
    on_device(Kernel.of((1, 1, 3)), 4, 5, n=129),  # rows beyond a tile
    on_device(Kernel.of(1), 3, 2, n=60, apart=True),  # rows without a triplet
]
FAN_IN = [
    FanIn(FLAT, 6, 8, groups=2, n=4, device=DEVICE, symmetric=True),
    FanIn(EVEN, 17, 5, HALF, n=4, device=DEVICE, transposed=True),
    FanIn(K3, 4, 5, n=0, device=DEVICE),
]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gather_scatter, gemm, triplets, weight_stationary):
        monkeypatch.setattr(module, "kernels_serve", lambda x, dtype: True)


def product(flow: Dataflow, kernel_map: KernelMap, x: Tensor, w: Tensor, spec: ConvSpec) -> Tensor:
    return flow.forward(x, w, kernel_map.layouts(flow.needs), kernel_map.n_out, spec)


@pytest.mark.parametrize("flow", FLOWS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_equal_float64(flow: Dataflow, case: Case) -> None:
    conformance.check_products(flow, case)


@pytest.mark.parametrize("flow", [WIDE, HYBRIDS[0], WHOLE, *BY_TRIPLETS], ids=str)
@pytest.mark.parametrize("case", FAN_IN, ids=str)
def test_slots_with_several_inputs(flow: Dataflow, case: Case) -> None:
    conformance.check_products(flow, case)


@pytest.mark.parametrize("flow", [*FUSING, *GATHERING[1:]], ids=str)
@pytest.mark.parametrize(
    ("c_skip", "epilogue", "dtype", "n"),
    [(0, "abr+", HALF, 20), (5, "b", SINGLE, 12), (0, "ab", SINGLE, 0)],
)
def test_what_follows_a_product(
    flow: Dataflow, c_skip: int, epilogue: str, dtype: torch.dtype, n: int
) -> None:
    case = on_device(FLAT, 16, 18, dtype, n=n, c_skip=c_skip, epilogue=epilogue)
    conformance.check_products(flow, case)


def test_sections_of_slots_meet_in_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (tile_steps, device_steps):
        monkeypatch.setattr(module, "is_sparse", lambda *_: True)
    monkeypatch.setattr(tile_steps, "WHOLE_SLOTS", 0)
    conformance.check_products(SECTIONS, on_device(Kernel.of((3, 1, 5)), 16, 16, n=40))


@pytest.mark.parametrize("groups", [1, 2])
def test_tiles_of_too_many_steps_are_summed_at_the_gather(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = random_map(30, 300, 27, 300, device=DEVICE)
    ends = built.layout("steps")[2].tolist()
    x, weight = (torch.randn(*size, device=DEVICE) for size in ((30, 20), (27, 20 // groups, 6)))
    wanted = product(Reference(), built, x, weight, EXACT._replace(groups=groups))
    for room in (0, ends[0], ends[-1] - 1):
        leave_room(monkeypatch, built, room)
        again = random_map(30, 300, 27, 300, device=DEVICE)
        assert again.layout("steps")[3].shape[0] == room
        for flow in (WIDE, OutputStationary(replace(GEMM, split=3))):
            out = product(flow, again, x, weight, spec_of(SINGLE)._replace(groups=groups))
            assert relative_rms(out, wanted) < RELATIVE_RMS[SINGLE], room


def test_lists_in_memory_of_fixed_size() -> None:
    """Spare entries are not read: they name rows of NaN."""
    built = random_map(30, 140, 9, 400, device=DEVICE)
    room = MapRoom(50, 2 * TILE_ROWS, 700)

    def lists(names: tuple[str, ...]) -> list[torch.Tensor]:
        found = []
        for name in names:
            layout = built.layout(name)
            padded = paddings(name, layout, room, built.n_out)
            own = memory_of(layout, padded)
            for tensor in own:
                tensor.fill_(49)
            place(parts_of(own, layout, padded))
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
        assert relative_rms(out[:140], wanted) < RELATIVE_RMS[SINGLE], flow
        assert not out[140:].any(), flow
        found = flow.weight_grad(x, grad, lists(flow.needs_weight_grad), spec_of(SINGLE))
        assert relative_rms(found, wanted_grad) < RELATIVE_RMS[SINGLE], flow


@pytest.mark.parametrize("flow", HYBRIDS, ids=str)
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
