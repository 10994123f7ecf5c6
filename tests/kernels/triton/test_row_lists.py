"""Products of inputs summed at the gather, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.dataflows import ConvSpec, Epilogue, Reference  # noqa: E402
from pcnn.dataflows.row_stationary import RowStationary  # noqa: E402
from pcnn.geometry import Kernel, KernelMap  # noqa: E402
from pcnn.kernels.product_tiles import ProductShape, RowTiles  # noqa: E402
from pcnn.maps import SortedSearch  # noqa: E402
from pcnn.ops.conformance_cases import map_of, moved, random_map  # noqa: E402
from tests.clouds import surface_grid  # noqa: E402
from tests.dataflows.fan_in import leave_room  # noqa: E402
from tests.specs import EXACT  # noqa: E402
from tests.tolerance import RELATIVE_RMS, relative_rms  # noqa: E402

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
FLOW = RowStationary(RowTiles(128, 32, 32))
#: bfloat16 is rounded towards zero by the interpreter, so it is checked on a device.
DTYPES = [torch.float32, torch.float16] + [torch.bfloat16] * (DEVICE == "cuda")


@pytest.fixture(autouse=True)
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a launch allocates holds NaN."""
    allocate = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = allocate(*args, **kwargs)
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty", poisoned)


def make(n_in: int, n_out: int, volume: int, triplets: int, symmetric: bool = False) -> KernelMap:
    return moved(random_map(n_in, n_out, volume, triplets, symmetric), DEVICE)


def check(
    kernel_map: KernelMap,
    c_in: int,
    c_out: int,
    dtype: torch.dtype = torch.float32,
    *,
    flow: RowStationary = FLOW,
    groups: int = 1,
    transposed: bool = False,
    mirrored: bool = False,
    c_skip: int = 0,
    epilogue: Epilogue | None = None,
    out_dtype: torch.dtype | None = None,
) -> None:
    x = torch.randn(kernel_map.n_in, c_in, device=DEVICE).to(dtype)
    skip = torch.randn(kernel_map.n_in, c_skip, device=DEVICE).to(dtype) if c_skip else None
    sides = (c_out, c_in) if transposed else (c_in + c_skip, c_out)
    shape = kernel_map.volume, sides[0] // groups, sides[1]
    weight = torch.randn(shape, device=DEVICE).to(dtype)
    spec = ConvSpec(groups, transposed, mirrored, dtype, out_dtype or dtype, epilogue, skip)
    rows = kernel_map.n_out
    out = flow.by_kernels(x, weight, kernel_map.layouts(flow.needs), rows, spec)
    exact = spec._replace(compute_dtype=torch.float64, out_dtype=torch.float64)
    exact = exact if skip is None else exact._replace(skip=skip.double())
    pairs = kernel_map.layouts(("pairs",))
    wanted = Reference().forward(x.double(), weight.double(), pairs, rows, exact)
    assert out.dtype == spec.out_dtype
    assert out.shape == wanted.shape
    # the sums of slots are rounded to the dtype of the operands
    assert relative_rms(out, wanted) < RELATIVE_RMS[dtype]


@pytest.mark.parametrize(("c_in", "c_out"), [(1, 3), (16, 16), (33, 20)])
def test_any_channels(c_in: int, c_out: int) -> None:
    kernel_map = make(30, 40, 8, 200)
    check(kernel_map, c_in, c_out)
    check(kernel_map.transpose(), c_in, c_out)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    kernel_map = make(30, 30, 27, 60, symmetric=True)
    check(kernel_map, 16, 16, dtype)
    check(kernel_map, 16, 16, dtype, out_dtype=torch.float32)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("mirrored", [False, True])
def test_gradients_read_the_same_weight_and_lists(groups: int, mirrored: bool) -> None:
    kernel_map = make(20, 20, 27, 60, symmetric=True)
    check(kernel_map, 12, 20, groups=groups, transposed=True, mirrored=mirrored)
    check(kernel_map, 12, 20, groups=groups, mirrored=mirrored)


@pytest.mark.parametrize(
    "tiles", [RowTiles(16, 16, 32), RowTiles(128, 32, 16, 8)], ids=lambda tiles: tiles.name
)
def test_every_cut_gives_the_same_sums(tiles: RowTiles) -> None:
    check(make(50, 70, 4, 300), 20, 20, flow=RowStationary(tiles))


def test_tiles_are_chosen_by_shape() -> None:
    check(make(10, 10, 8, 40), 16, 16, torch.float16, flow=RowStationary())


def test_a_skip_connection_and_an_epilogue_follow() -> None:
    kernel_map = make(20, 30, 8, 100)
    check(kernel_map, 12, 18, torch.float16, c_skip=17)
    scale, shift = torch.randn(2, 18, device=DEVICE)
    residual = torch.randn(30, 18, device=DEVICE).half()
    for parts in (Epilogue(scale, shift, residual, True), Epilogue(shift=shift)):
        check(kernel_map, 12, 18, torch.float16, c_skip=5, epilogue=parts)


@pytest.mark.parametrize("c_in", [4, 8])
def test_steps_of_narrow_layers_lie_side_by_side(c_in: int) -> None:
    flow = RowStationary(RowTiles(64, 16, 16))
    check(make(40, 50, 8, 300), c_in, 20, flow=flow)
    check(make(40, 50, 8, 300), 2 * c_in, 20, flow=flow, groups=2, transposed=False)


@pytest.mark.parametrize(("groups", "together"), [(2, 2), (4, 4), (6, 2), (16, 8)])
def test_narrow_groups_are_taken_side_by_side(groups: int, together: int) -> None:
    kernel_map = make(30, 40, 8, 200)
    c_in, c_out = groups * 8, groups * 4
    shape = ProductShape.of(torch.empty(8, 8, c_out), ConvSpec(groups))
    assert shape.side_by_side == together
    flow = RowStationary(RowTiles(128, 32, 32))
    check(kernel_map, c_in, c_out, flow=flow, groups=groups)
    check(kernel_map, c_out, c_in, flow=flow, groups=groups, transposed=True)
    check(make(20, 30, 2, 400), c_in, c_out, groups=groups, flow=RowStationary())


@pytest.mark.parametrize("c_in", [4, 20])
def test_tiles_of_too_many_steps_are_summed_at_the_gather(c_in: int) -> None:
    kernel_map = make(30, 40, 3, 900)
    _, _, tile_steps, slots, *_ = kernel_map.layout("row_lists")
    assert int(tile_steps[-1]) > len(slots)
    for dtype in DTYPES:
        check(kernel_map, c_in, 20, dtype)
    check(kernel_map, c_in, 20, groups=2, mirrored=True)
    check(kernel_map, 12, c_in, transposed=True)
    check(kernel_map, c_in, 18, c_skip=5)


@pytest.mark.parametrize("c_in", [4, 20])
def test_some_tiles_are_listed_and_some_are_not(c_in: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_map = make(30, 300, 27, 300)
    ends = kernel_map.layout("row_lists")[2].tolist()
    for room in (ends[1] - 1, ends[1], ends[1] + 1, ends[-1] - 1, ends[-1]):
        leave_room(monkeypatch, kernel_map, room)
        again = moved(kernel_map, DEVICE)
        slots = again.layout("row_lists")[3]
        assert slots.shape[0] == room
        check(again, c_in, 20)


def test_many_inputs_and_rows_without_any() -> None:
    i = torch.tensor([3] * 21 + [0])
    j = torch.tensor([*range(10), *range(10), 4, 2])
    k = torch.tensor([1] * 21 + [2])
    check(moved(map_of(i, j, k, 10, 130, 3), DEVICE), 4, 5)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n: int) -> None:
    check(make(n, n, 27, 3), 4, 5)
    check(make(0, 2, 1, 0), 4, 5)


def test_a_map_with_one_input_per_slot() -> None:
    grid, kernel = surface_grid(40).to(DEVICE), Kernel.of(3)
    check(grid.map_to(grid, kernel, SortedSearch()), 16, 16)


def test_what_cannot_be_served_is_refused() -> None:
    kernel_map = make(4, 4, 3, 8)
    x, weight = torch.randn(4, 2, device=DEVICE), torch.randn(3, 2, 2, device=DEVICE)
    layouts = kernel_map.layouts(FLOW.needs)
    with pytest.raises(ValueError, match="use the dataflow 'reference'"):
        FLOW.by_kernels(x, weight, layouts, 4, EXACT)
    with pytest.raises(ValueError, match="at most 128 rows"):
        RowStationary(RowTiles(256, 16, 16))
