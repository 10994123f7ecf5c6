"""Batch norm over the first rows of a tensor, the number of which the host does not know."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from pcnn.nn.features import normalize


@pytest.mark.parametrize(
    "options", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_spare_rows_are_in_no_statistics(options: dict[str, Any], dtype: torch.dtype) -> None:
    plain = nn.BatchNorm1d(3, **options)
    if dtype == torch.float64:
        plain.double()
    for parameter in plain.parameters():
        nn.init.normal_(parameter)
    counted = copy.deepcopy(plain)
    for rows in (5, 2):
        features = (torch.randn(rows, 3) * 3 + 1).to(dtype).requires_grad_()
        spare = torch.full((4, 3), torch.inf, dtype=dtype)
        padded = torch.cat([features.detach(), spare]).requires_grad_()
        expected = plain(features)
        found = normalize(counted, padded, torch.tensor([rows], dtype=torch.int32))
        assert found.dtype == expected.dtype
        assert (found[rows:] == 0).all()
        close = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(found[:rows], expected, **close)
        weights = torch.randn(rows, 3).to(dtype)
        (expected * weights).sum().backward()
        (found[:rows] * weights).sum().backward()
        assert padded.grad is not None
        assert (padded.grad[rows:] == 0).all()
        torch.testing.assert_close(padded.grad[:rows], features.grad, **close)
        for own, other in zip(counted.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(own, other, **close)
    for one, other in zip(counted.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, **close)


def test_in_evaluation_rows_do_not_know_of_each_other() -> None:
    norm = nn.BatchNorm1d(3).eval()
    features = torch.randn(4, 3)
    found = normalize(norm, features, torch.tensor([2], dtype=torch.int32))
    torch.testing.assert_close(found, norm(features))
