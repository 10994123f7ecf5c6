"""Sums over rows in pieces, against float64."""

import functools
from collections.abc import Callable

import pytest
import torch

from pcnn.dataflows import torch_sums as module
from pcnn.dataflows.torch_sums import PIECE_ROWS, reduced_product
from tests.tolerance import RELATIVE_RMS, SUMS_ON_TENSOR_CORES, relative_rms

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

#: Operands of every dtype, and the dtype of their sums.
DTYPES = [
    (torch.float16, torch.float32),
    (torch.bfloat16, torch.float32),
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
]


def check(count: int, rows: int, operand: torch.dtype, sums: torch.dtype, device: str) -> None:
    left = torch.randn(count, rows, 5, device=device).to(operand)
    right = torch.randn(count, rows, 3, device=device).to(operand)
    found = reduced_product(left, right, sums)
    wanted = left.double().transpose(1, 2) @ right.double()
    assert found.dtype == sums
    assert found.shape == wanted.shape
    # the order of additions, over up to 32 thousand rows
    assert relative_rms(found, wanted) < 4 * RELATIVE_RMS[sums]


@pytest.mark.parametrize(("operand", "sums"), DTYPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_lengths_around_the_pieces(
    operand: torch.dtype, sums: torch.dtype, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", 8)
    for rows in (0, 1, 7, 8, 9, 15, 16, 17, 24, 25, 33):
        check(count, rows, operand, sums, "cpu")


@pytest.mark.parametrize("rows", [PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS + 17])
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
    check(count, rows, torch.float16, torch.float32, "cpu")
    assert max(summed) <= PIECE_ROWS


def test_autocast_rounds_nothing() -> None:
    left, right = torch.randn(1, PIECE_ROWS + 3, 4), torch.randn(1, PIECE_ROWS + 3, 5)
    expected = reduced_product(left, right, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(reduced_product(left, right, torch.float32), expected)


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
