"""Weight gradients of real maps on a GPU, against plain torch in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.geometry import Kernel, KernelMap
from pcnn.maps import Windowed
from tests.clouds import surface_grid
from tests.specs import spec_of
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
    return [tensor for name in ("pairs", "counts") for tensor in kernel_map.layout(name)]


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


def run(x: Tensor, grad: Tensor, lists: list[Tensor], tiles: Any = None, **more: Any) -> Tensor:
    """The gradient in float32."""
    from pcnn.kernels.outer_products import outer_products

    in_index, out_index, _, counts = lists
    spec = spec_of(x.dtype, torch.float32, **more)
    return outer_products(x, grad, in_index, out_index, counts, spec, tiles)


def check(x: Tensor, grad: Tensor, lists: list[Tensor], groups: int = 1, tiles: Any = None) -> None:
    out = run(x, grad, lists, tiles, groups=groups)
    assert relative_rms(out, exact(x, grad, lists, groups)) < BOUND


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())
@pytest.mark.parametrize("c", [1, 3, 4, 16, 32, 33, 64, 96, 128, 256])
def test_sums_equal_float64(c: int, kernel: Kernel, dtype: torch.dtype) -> None:
    kernel_map = map_of(20_000, kernel)
    check(*features(kernel_map, c, c, dtype), lists_of(kernel_map))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("c_in", "c_out"), [(4, 16), (16, 128), (128, 16), (64, 256), (256, 96)])
def test_channels_of_both_sides(c_in: int, c_out: int, dtype: torch.dtype) -> None:
    kernel_map = map_of(20_000, Kernel.of(3))
    check(*features(kernel_map, c_in, c_out, dtype), lists_of(kernel_map))


@pytest.mark.parametrize("groups", [2, 4, 16])
def test_groups(groups: int) -> None:
    kernel_map = map_of(5_000, Kernel.of(3))
    check(*features(kernel_map, 64, 32, torch.float16), lists_of(kernel_map), groups)


def test_tf32_obeys_the_switch_of_torch() -> None:
    kernel_map = map_of(20_000, Kernel.of(3))
    x, grad = features(kernel_map, 64, 64, torch.float32)
    lists = lists_of(kernel_map)
    torch.backends.cuda.matmul.allow_tf32 = True
    out = run(x, grad, lists)
    # operands have 10 bits of mantissa, as float16
    assert BOUND < relative_rms(out, exact(x, grad, lists)) < 2 * RELATIVE_RMS[torch.float16]


@pytest.mark.parametrize("c", [16, 64, 256])
def test_two_runs_give_identical_bits(c: int) -> None:
    kernel_map = map_of(100_000, Kernel.of(3))
    x, grad = features(kernel_map, c, c, torch.float16)
    runs = [run(x, grad, lists_of(kernel_map)) for _ in range(5)]
    assert all(torch.equal(runs[0], one) for one in runs)


@pytest.mark.parametrize("n", [0, 1, 2, 65])
def test_small_and_empty_clouds(n: int) -> None:
    kernel_map = map_of(n, Kernel.of(3))
    x, grad = features(kernel_map, 8, 12, torch.float16)
    lists = lists_of(kernel_map)
    out = run(x, grad, lists)
    torch.testing.assert_close(out, exact(x, grad, lists).float(), rtol=1e-5, atol=1e-5)


def test_mirrored_slots_and_no_waiting(no_sync: object) -> None:
    torch.cuda.set_sync_debug_mode("default")
    kernel_map = map_of(3_000, Kernel.of(3))
    x, grad = features(kernel_map, 16, 24, torch.float16)
    lists = lists_of(kernel_map)
    torch.cuda.set_sync_debug_mode("error")
    plain = run(x, grad, lists)
    mirrored = run(x, grad, lists, mirrored=True)
    torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(mirrored, plain.flip(0))


def test_rows_beyond_int32_elements() -> None:
    """Row numbers times channels exceed 2^31; the last rows are the only ones that are read."""
    from pcnn.kernels.outer_products import OuterProductTiles

    rows, channels = 17_000_000, 128
    x = torch.zeros(rows, channels, device="cuda", dtype=torch.float16)
    x[-64:] = torch.randn(64, channels, device="cuda")
    index = torch.arange(rows - 64, rows, device="cuda", dtype=torch.int32)
    lists = [index, index.flip(0), torch.tensor([0, 40, 64]), torch.tensor([40, 24]).cuda()]
    tiles = OuterProductTiles(128, 128, 64, 64, 8, 5)
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
    out = run(x, x, lists_of(kernel_map))
    assert float(out.max()) == pytest.approx(9e4 * kernel_map.n_in)
