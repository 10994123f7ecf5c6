"""Sums over rows in pieces, against float64."""

import functools
from collections.abc import Callable

import pytest
import torch

from pcnn.dataflows import torch_sums as module
from pcnn.dataflows.torch_sums import PIECE_ROWS, reduced_product
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def check(count: int, rows: int, operand: torch.dtype, sums: torch.dtype) -> None:
    left = torch.randn(count, rows, 5).to(operand)
    right = torch.randn(count, rows, 3).to(operand)
    found = reduced_product(left, right, sums)
    wanted = left.double().transpose(1, 2) @ right.double()
    assert found.dtype == sums
    assert found.shape == wanted.shape
    # the order of additions, over up to 32 thousand rows
    assert relative_rms(found, wanted) < 4 * RELATIVE_RMS[sums]


@pytest.mark.parametrize("rows", [0, 1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS + 17])
@pytest.mark.parametrize("count", [1, 4])
def test_no_call_sums_more_rows_than_a_piece(
    rows: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed = []

    def counted(call: Product, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        summed.append(b.shape[-2])
        return call(a, b)

    for name in ("mm", "bmm"):
        monkeypatch.setattr(torch, name, functools.partial(counted, getattr(torch, name)))
    for operand in (torch.float16, torch.bfloat16, torch.float32):
        check(count, rows, operand, torch.float32)
    check(count, rows, torch.float64, torch.float64)
    assert max(summed) <= PIECE_ROWS


def test_derivatives_of_sums_over_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", 4)
    sides = [torch.randn(2, 11, c, dtype=torch.float64, requires_grad=True) for c in (2, 3)]
    assert torch.autograd.gradgradcheck(
        lambda a, b: reduced_product(a, b, torch.float64), sides, fast_mode=True
    )


@pytest.mark.gpu
@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("rows", [4096, 4097, 19424, 32017, 100_003])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_no_row_of_a_long_sum_is_lost(
    dtype: torch.dtype, rows: int, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_wide_products", lambda: wide)
    for count in (1, 2, 26):
        left, right = (torch.randn(count, rows, 64, device="cuda").to(dtype) for _ in range(2))
        found = reduced_product(left, right, torch.float32)
        wanted = left.double().transpose(1, 2) @ right.double()
        assert relative_rms(found, wanted) < SUMS_ON_TENSOR_CORES
