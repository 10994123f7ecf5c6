"""Weight gradients of real maps on a GPU, against plain torch in float64."""

import dataclasses

import pytest
import torch
from torch import Tensor

from pcnn.dataflows.outer_products import NEEDS_VVOR, vvor, vvor_by_row
from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import Windowed
from tests.clouds import surface_grid
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

pytestmark = pytest.mark.gpu

KERNELS = {"submanifold": Kernel.of(3), "strided": Kernel.of(3, 2), "K5": Kernel.of(5)}
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
#: Sums of T / K products of either sign in float32, chunk by chunk.
BOUND = SUMS_ON_TENSOR_CORES


@pytest.fixture
def no_sync() -> object:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def map_of(n: int, kernel: Kernel) -> KernelMap:
    grid = surface_grid(n, batch_size=2).to("cuda")
    return Windowed().build(grid, grid.strided(kernel), kernel)


def lists_of(kernel_map: KernelMap) -> list[Tensor]:
    return [tensor for name in NEEDS_VVOR for tensor in kernel_map.layout(name)]


def features(
    kernel_map: KernelMap, c_in: int, c_out: int, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    x = torch.randn(kernel_map.n_in, c_in, device="cuda", dtype=dtype)
    return x, torch.randn(kernel_map.n_out, c_out, device="cuda", dtype=dtype)


def exact(x: Tensor, grad: Tensor, lists: list[Tensor], groups: int = 1) -> Tensor:
    """Slot by slot in float64."""
    in_index, out_index, offsets, _ = lists
    slots = []
    for start, end in zip(offsets.tolist(), offsets.tolist()[1:], strict=False):
        a = x[in_index[start:end].long()].double().unflatten(1, (groups, x.shape[1] // groups))
        b = grad[out_index[start:end].long()].double()
        b = b.unflatten(1, (groups, grad.shape[1] // groups))
        slots.append(torch.einsum("tgc,tgd->cgd", a, b).flatten(1))
    return torch.stack(slots)


def check(
    x: Tensor, grad: Tensor, lists: list[Tensor], groups: int = 1, **settings: object
) -> None:
    out = vvor(x, grad, lists, groups, x.dtype, torch.float32, **settings)  # type: ignore[arg-type]
    assert relative_rms(out, exact(x, grad, lists, groups)) < BOUND


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("c", [1, 3, 4, 16, 32, 33, 64, 96, 128, 256])
def test_sums_equal_float64(c: int, kernel: Kernel, dtype: torch.dtype) -> None:
    kernel_map = map_of(20_000, kernel)
    check(*features(kernel_map, c, c, dtype), lists_of(kernel_map))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("c_in", "c_out"), [(4, 16), (16, 128), (128, 16), (64, 256), (256, 96)])
@pytest.mark.parametrize("variant", ["partials", "segment", "atomic"])
def test_variants(variant: str, c_in: int, c_out: int, dtype: torch.dtype) -> None:
    from pcnn.kernels.outer_products import default_tiles

    kernel_map = map_of(20_000, Kernel.of(3))
    lists = lists_of(kernel_map)
    tiles = default_tiles(len(lists[0]), c_in, c_out, itemsize=dtype.itemsize)
    tiles = dataclasses.replace(tiles, variant=variant)
    check(*features(kernel_map, c_in, c_out, dtype), lists, tiles=tiles)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize(
    ("c_in", "c_out", "groups"), [(4, 16, 1), (32, 33, 1), (64, 64, 1), (128, 256, 1), (64, 32, 4)]
)
def test_sums_by_row(
    c_in: int, c_out: int, groups: int, kernel: Kernel, dtype: torch.dtype
) -> None:
    kernel_map = map_of(20_000, kernel)
    x, grad = features(kernel_map, c_in, c_out, dtype)
    table, expected = kernel_map.layout("table"), exact(x, grad, lists_of(kernel_map), groups)
    runs = [vvor_by_row(x, grad, table, groups, dtype, torch.float32) for _ in range(3)]
    assert relative_rms(runs[0], expected) < BOUND
    assert all(torch.equal(runs[0], run) for run in runs)
    mirrored = vvor_by_row(x, grad, table, groups, dtype, torch.float32, mirrored=True)
    assert torch.equal(mirrored, runs[0].flip(0))


@pytest.mark.parametrize("cached", [False, True], ids=["past_the_cache", "cached"])
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_slots_of_a_program(slots: int, cached: bool) -> None:
    from pcnn.kernels.outer_products_by_row import default_row_tiles

    kernel_map = map_of(20_000, Kernel.of(3))
    x, grad = features(kernel_map, 64, 64, torch.float16)
    cut = default_row_tiles(kernel_map.n_out, 27, 64, 64)
    cut = dataclasses.replace(cut, slots=slots, cached=cached)
    table = kernel_map.layout("table")
    out = vvor_by_row(x, grad, table, 1, torch.float16, torch.float32, tiles=cut)
    assert relative_rms(out, exact(x, grad, lists_of(kernel_map))) < BOUND


@pytest.mark.parametrize("groups", [2, 4, 16])
def test_groups(groups: int) -> None:
    kernel_map = map_of(5_000, Kernel.of(3))
    check(*features(kernel_map, 64, 32, torch.float16), lists_of(kernel_map), groups)


def test_tf32_obeys_the_switch_of_torch() -> None:
    kernel_map = map_of(20_000, Kernel.of(3))
    x, grad = features(kernel_map, 64, 64, torch.float32)
    lists = lists_of(kernel_map)
    torch.backends.cuda.matmul.allow_tf32 = True
    out = vvor(x, grad, lists, 1, torch.float32, torch.float32)
    # operands have 10 bits of mantissa, as float16
    assert BOUND < relative_rms(out, exact(x, grad, lists)) < 2 * RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("variant", ["partials", "segment"])
@pytest.mark.parametrize("c", [16, 64, 256])
def test_two_runs_give_identical_bits(variant: str, c: int) -> None:
    from pcnn.kernels.outer_products import default_tiles

    kernel_map = map_of(100_000, Kernel.of(3))
    x, grad = features(kernel_map, c, c, torch.float16)
    lists = lists_of(kernel_map)
    tiles = dataclasses.replace(default_tiles(len(lists[0]), c, c), variant=variant)
    runs = [vvor(x, grad, lists, 1, torch.float16, torch.float32, tiles=tiles) for _ in range(5)]
    assert all(torch.equal(runs[0], run) for run in runs)


@pytest.mark.parametrize("n", [0, 1, 2, 65])
def test_small_and_empty_clouds(n: int) -> None:
    kernel_map = map_of(n, Kernel.of(3))
    x, grad = features(kernel_map, 8, 12, torch.float16)
    lists = lists_of(kernel_map)
    out = vvor(x, grad, lists, 1, torch.float16, torch.float32)
    torch.testing.assert_close(out, exact(x, grad, lists).float(), rtol=1e-5, atol=1e-5)


def test_mirrored_slots_and_no_waiting(no_sync: object) -> None:
    torch.cuda.set_sync_debug_mode("default")
    kernel_map = map_of(3_000, Kernel.of(3))
    x, grad = features(kernel_map, 16, 24, torch.float16)
    lists = lists_of(kernel_map)
    torch.cuda.set_sync_debug_mode("error")
    plain = vvor(x, grad, lists, 1, torch.float16, torch.float32)
    mirrored = vvor(x, grad, lists, 1, torch.float16, torch.float32, mirrored=True)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(mirrored, plain.flip(0))


@pytest.mark.parametrize("variant", ["partials", "segment", "atomic"])
def test_rows_beyond_int32_elements(variant: str) -> None:
    """Row numbers times channels exceed 2^31; the last rows are the only ones that are read."""
    from pcnn.kernels.outer_products import OuterProductTiles

    rows, channels = 17_000_000, 128
    x = torch.zeros(rows, channels, device="cuda", dtype=torch.float16)
    x[-64:] = torch.randn(64, channels, device="cuda")
    index = torch.arange(rows - 64, rows, device="cuda", dtype=torch.int32)
    lists = [index, index.flip(0), torch.tensor([0, 40, 64]), torch.tensor([40, 24]).cuda()]
    tiles = OuterProductTiles(128, 128, 64, 64, 8, 5, variant)  # type: ignore[arg-type]
    check(x, x, lists, tiles=tiles)


def test_many_triplets() -> None:
    """30 million pairs: sums of a slot have a million terms."""
    total, volume, rows = 30_000_000, 27, 600_000
    in_index = torch.randint(0, rows, (total,), device="cuda", dtype=torch.int32)
    counts = torch.full((volume,), total // volume, device="cuda")
    counts[13] += total - int(counts.sum())
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).cpu()
    x = torch.randn(rows, 32, device="cuda", dtype=torch.float16)
    grad = torch.randn(rows, 64, device="cuda", dtype=torch.float16)
    check(x, grad, [in_index, in_index.flip(0), offsets, counts])


def test_weight_gradients_beyond_float16_do_not_overflow() -> None:
    kernel_map = map_of(5_000, Kernel.of(1))
    x = torch.full((kernel_map.n_in, 2), 300.0, dtype=torch.float16, device="cuda")
    out = vvor(x, x, lists_of(kernel_map), 1, torch.float16, torch.float32)
    assert float(out.max()) == pytest.approx(9e4 * kernel_map.n_in)
