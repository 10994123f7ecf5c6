"""Scatters, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

import os

import pytest
import torch

pytest.importorskip("triton")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no CUDA device and no TRITON_INTERPRET=1", allow_module_level=True)

from pcnn.geometry import Kernel, KernelMap
from pcnn.kernels.scatter import scatter
from pcnn.kernels.scatter_slots import scatter_slots
from tests.kernels.triton.rows import DEVICE, MAPS, buffer_row, make, placed, with_turns

NAN = float("nan")


def poisoned(kernel_map: KernelMap, channels: int, dtype: torch.dtype) -> torch.Tensor:
    """Products of a map: NaN wherever there is no triplet."""
    place = placed(kernel_map)
    products = torch.full((place.rows, channels), NAN, dtype=dtype, device=DEVICE)
    rows = buffer_row(kernel_map, place)
    products[rows] = torch.randn(len(rows), channels, device=DEVICE).to(dtype)
    return products


def summed(kernel_map: KernelMap, products: torch.Tensor) -> torch.Tensor:
    rows = buffer_row(kernel_map, placed(kernel_map))
    out = products.new_zeros(kernel_map.n_out, products.shape[1], dtype=torch.float64)
    return out.index_add_(0, kernel_map.out_index, products[rows].double())


@pytest.mark.parametrize(
    ("channels", "vectorised", "kernel"),
    with_turns((1, 3, 16, 33, 40), (True, False), turning=tuple(MAPS)),
)
def test_rows_sum_their_products(channels: int, vectorised: bool, kernel: str) -> None:
    kernel_map = make(*MAPS[kernel], n=40)
    products = poisoned(kernel_map, channels, torch.float16)
    shifts = torch.tensor(placed(kernel_map).shifts, device=DEVICE)
    out = torch.full((kernel_map.n_out + 3, channels), NAN, device=DEVICE)
    by_out = kernel_map.layout("by_out")
    scatter(products, by_out, shifts, out[: kernel_map.n_out], vectorised=vectorised)
    assert out[kernel_map.n_out :].isnan().all()  # rows that nobody may touch
    expected = summed(kernel_map, products)
    torch.testing.assert_close(out[: kernel_map.n_out].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "vectorised", "fused", "channels"),
    with_turns(MAPS, (True, False), (True, False), turning=(3, 40)),
)
def test_slots_add_their_products(
    kernel: str, vectorised: bool, fused: bool, channels: int
) -> None:
    kernel_map = make(*MAPS[kernel], n=40)
    place = placed(kernel_map)
    products = poisoned(kernel_map, channels, torch.float16)
    shifts = torch.tensor(place.shifts, device=DEVICE)
    sums = torch.zeros(kernel_map.n_out, channels, device=DEVICE)
    lists = kernel_map.out_index, kernel_map.layout("counts")[0], shifts
    if fused:
        scatter_slots(products, *lists, sums, vectorised=vectorised)
    else:
        for slot in range(kernel_map.volume):
            part = (*place.offsets[slot : slot + 2], place.shifts[slot])
            scatter_slots(products, *lists, sums, part=part, vectorised=vectorised)
    expected = summed(kernel_map, products)
    torch.testing.assert_close(sums.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tile", [1, 4, 32, 64])
def test_the_tile_changes_no_bit(tile: int) -> None:
    kernel_map = make(Kernel.of(3))
    products = poisoned(kernel_map, 24, torch.float32)
    shifts = torch.tensor(placed(kernel_map).shifts, device=DEVICE)
    outs = [torch.full((kernel_map.n_out, 24), NAN, device=DEVICE) for _ in range(2)]
    scatter(products, kernel_map.layout("by_out"), shifts, outs[0])
    scatter(products, kernel_map.layout("by_out"), shifts, outs[1], tile=tile)
    assert torch.equal(*outs)


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "tolerance"),
    [
        (torch.float16, torch.float16, 1e-3),
        (torch.bfloat16, torch.float32, 1e-5),
        (torch.float32, torch.float16, 1e-3),
        (torch.float64, torch.float64, 1e-14),
    ],
)
def test_sums_are_rounded_once(
    dtype: torch.dtype, out_dtype: torch.dtype, tolerance: float
) -> None:
    kernel_map = make(Kernel.of(3))
    products = poisoned(kernel_map, 8, dtype)
    shifts = torch.tensor(placed(kernel_map).shifts, device=DEVICE)
    out = torch.full((kernel_map.n_out, 8), NAN, device=DEVICE, dtype=out_dtype)
    scatter(products, kernel_map.layout("by_out"), shifts, out)
    expected = summed(kernel_map, products)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_rows_without_triplets_are_zero() -> None:
    none = KernelMap.from_pairs(
        *torch.zeros(2, 0, dtype=torch.int32, device=DEVICE), torch.zeros(28).long(), 5, 5
    )
    out = torch.full((5, 8), NAN, device=DEVICE)
    shifts = torch.zeros(27, dtype=torch.int64, device=DEVICE)
    scatter(torch.empty(0, 8, device=DEVICE), none.layout("by_out"), shifts, out)
    assert (out == 0).all()
