from __future__ import annotations

import pytest
import torch

from pcnn.ops.agreement import RELATIVE_RMS, disagreement

DTYPES = list(RELATIVE_RMS)


def held(dtype: str) -> torch.dtype:
    """What a tensor of rounded operands' products is stored in."""
    return getattr(torch, "float32" if dtype == "tf32" else dtype)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_rounding_is_explained_and_ten_bounds_are_not(dtype: str) -> None:
    truth = torch.randn(500, 7, dtype=torch.float64)
    assert disagreement(truth.to(held(dtype)), truth, dtype) is None
    off = truth + 10 * RELATIVE_RMS[dtype] * torch.randn_like(truth)
    assert "is off by" in str(disagreement(off, truth, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_wrong_element_is_found(dtype: str) -> None:
    truth = torch.randn(100_000, dtype=torch.float64)
    result = truth.to(held(dtype), copy=True)
    result[123] += 100 * RELATIVE_RMS[dtype]
    assert disagreement(result, truth, dtype) is not None


def test_shapes_and_values_that_are_none() -> None:
    truth = torch.randn(5, 3, dtype=torch.float64)
    assert disagreement(truth[:4], truth, "float64") == "has the shape (4, 3) instead of (5, 3)"
    assert disagreement(truth * torch.nan, truth, "float64") == "is not finite"
    assert disagreement(truth[:0], truth[:0], "float64") is None


def test_long_sums_may_be_further_off() -> None:
    truth = torch.randn(1000, dtype=torch.float64)
    off = truth * (1 + 4e-6)
    assert disagreement(off, truth, "float32")
    assert disagreement(off, truth, "float32", terms=1_000_000) is None
    assert disagreement(off, truth, "float64", terms=1_000_000)
