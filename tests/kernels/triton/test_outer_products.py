"""Gradients of the weights, on a GPU, or with TRITON_INTERPRET=1 on a CPU."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.kernels import outer_products as module
from pcnn.kernels.outer_products import outer_products
from tests.kernels.triton.conftest import DEVICE
from tests.specs import spec_of
from tests.tolerance import RELATIVE_RMS, relative_rms

HALF, SINGLE = torch.float16, torch.float32
COUNTS = (90, 0, 1, 64, 170, 0)  # an empty slot, one pair, a whole chunk, several chunks


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one step."""
    monkeypatch.setattr(module, "chunk_of", lambda triplets, resident, block_pairs: block_pairs)


def pairs(counts: Sequence[int], rows: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of random rows, output rows ascending within a slot."""
    in_index = torch.randint(0, rows, (sum(counts),), dtype=torch.int32)
    parts = [torch.randint(0, rows, (count,)).sort().values for count in counts]
    out_index = torch.cat([*parts, torch.zeros(0)]).to(torch.int32)
    on_device = torch.tensor(counts, dtype=torch.int64, device=DEVICE)
    return in_index.to(DEVICE), out_index.to(DEVICE), on_device


def exact(
    x: Tensor, grad: Tensor, in_index: Tensor, out_index: Tensor, counts: Tensor, groups: int = 1
) -> Tensor:
    """The same in float64: ``[K, C_in / groups, C_out]``."""
    slots = torch.arange(len(counts), device=x.device).repeat_interleave(counts)
    a = x.double()[in_index.long()].unflatten(1, (groups, -1))
    b = grad.double()[out_index.long()].unflatten(1, (groups, -1))
    products = torch.einsum("tgc,tgd->tcgd", a, b).flatten(2)
    return products.new_zeros(len(counts), *products.shape[1:]).index_add_(0, slots, products)


def run(x: Tensor, grad: Tensor, lists: Sequence[Tensor], **settings: Any) -> Tensor:
    spec = spec_of(x.dtype, SINGLE)._replace(**settings)
    return outer_products(x, grad, *lists, spec)


def random(c_in: int, c_out: int, dtype: torch.dtype = SINGLE) -> tuple[Tensor, Tensor]:
    return torch.randn(50, c_in).to(DEVICE, dtype), torch.randn(50, c_out).to(DEVICE, dtype)


@pytest.mark.parametrize(
    ("dtype", "c_in", "c_out", "groups", "counts"),
    [
        (HALF, 20, 33, 1, COUNTS),
        (SINGLE, 1, 3, 1, COUNTS),
        (SINGLE, 40, 4, 2, COUNTS),
        (SINGLE, 6, 36, 3, COUNTS),
        (SINGLE, 3, 4, 1, (100, 0, 40)),
        (HALF, 24, 40, 1, (100, 0, 40)),
        (SINGLE, 3, 4, 1, ()),
    ],
    ids=str,
)
def test_sums_equal_float64(
    dtype: torch.dtype, c_in: int, c_out: int, groups: int, counts: tuple[int, ...]
) -> None:
    (x, grad), lists = random(c_in, c_out, dtype), pairs(counts)
    expected = exact(x, grad, *lists, groups)
    for mirrored in (False, True):
        out = run(x, grad, lists, groups=groups, mirrored=mirrored)
        assert out.dtype == SINGLE
        assert out.shape == expected.shape == (len(counts), c_in // groups, c_out)
        wanted = expected.flip(0) if mirrored else expected
        assert torch.equal(out, wanted) or relative_rms(out, wanted) < RELATIVE_RMS[SINGLE]
        empty = torch.tensor(counts) == 0
        assert (out[empty.flip(0) if mirrored else empty] == 0).all()


def test_rows_outside_every_pair_are_not_read_and_sums_are_not_of_half() -> None:
    x, grad = random(16, 16)
    x[0], grad[0] = float("inf"), float("nan")
    in_index, out_index, counts = pairs([21, 3])
    lists = in_index.clamp_min(1), out_index.clamp_min(1), counts
    assert run(x, grad, lists).isfinite().all()
    x = torch.full((50, 2), 300.0, dtype=HALF, device=DEVICE)
    assert (run(x, x, pairs([70])) == 70 * 9e4).all()


def test_pairs_and_counts_begin_anywhere() -> None:
    x, grad = random(16, 32, HALF)
    lists = pairs(COUNTS)
    # behind one number more, as between other tensors
    moved = [torch.cat([part[:1], part])[1:] for part in lists]
    assert torch.equal(run(x, grad, lists), run(x, grad, moved))
