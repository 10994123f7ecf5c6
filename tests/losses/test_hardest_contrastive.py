"""The loss against loops over Python floats and sets; what batches without matches do."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pcnn.losses.descriptors import HardestContrastive, drawn, hardest_contrastive
from tests.losses.pairs import DEGENERATE, pair_batch, unit_rows


def by_loops(
    f: Tensor,
    g: Tensor,
    pairs: Tensor,
    anchors: Tensor,
    pools: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """FCGF's loss, one match at a time, in the precision of the features; margins 0.1 and 1.4."""
    listed = {(i, j) for i, j in pairs.tolist()}
    source_pool, target_pool = (pool.tolist() for pool in pools)
    positive: list[Tensor] = []
    hinges: tuple[list[Tensor], list[Tensor]] = ([], [])

    def gap(a: Tensor, b: Tensor) -> Tensor:
        return (((a - b) ** 2).sum() + 1e-7) ** 0.5

    for i, j in anchors.tolist():
        positive.append(torch.clamp(((f[i] - g[j]) ** 2).sum() - 0.1, min=0))
        n = min(target_pool, key=lambda row: float(gap(f[i], g[row]).detach()))
        if (i, n) not in listed:
            hinges[0].append(torch.clamp(1.4 - gap(f[i], g[n]), min=0) ** 2)
        n = min(source_pool, key=lambda row: float(gap(g[j], f[row]).detach()))
        if (n, j) not in listed:
            hinges[1].append(torch.clamp(1.4 - gap(g[j], f[n]), min=0) ** 2)
    nothing = (f[:0].sum() + g[:0].sum()).reshape(())
    means = [torch.stack(side).mean() if side else nothing for side in (positive, *hinges)]
    return means[0], (means[1] + means[2]) / 2


def batch_of_two(seed: int = 0, n: int = 23) -> Any:
    generator = torch.Generator().manual_seed(seed)
    sources = [torch.rand(n, 3, generator=generator) * 4 for _ in range(2)]
    targets = [s[torch.randperm(n, generator=generator)[: n - 4]] + 0.05 for s in sources]
    return pair_batch(sources, targets, 1.2)


def test_listed_matches_are_masked_and_only_those() -> None:
    # both rows of the target look like the source's; one is listed, the other lies beside it
    f = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    g = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    anchors, everything = torch.tensor([[0, 0]]), (torch.tensor([0]), torch.tensor([0, 1]))
    positive, negative = hardest_contrastive(f, g, anchors, anchors, *everything)
    assert positive == 0
    assert negative == 0  # each anchor's nearest row is its own match: no second choice is taken
    only = (torch.tensor([0]), torch.tensor([1]))
    _, negative = hardest_contrastive(f, g, anchors, anchors, *only)
    distance = math.sqrt(0.2**2 + 0.6**2 + 1e-7)
    assert float(negative) == pytest.approx((1.4 - distance) ** 2 / 2, rel=1e-12)
    both = torch.tensor([[0, 0], [0, 1]])
    _, negative = hardest_contrastive(f, g, both, anchors, *only)
    assert negative == 0


def test_equals_the_loops_with_gradients_of_the_same_draws() -> None:
    batch, cpu = batch_of_two(1), torch.device("cpu")
    f, g = unit_rows(46, 4, 1), unit_rows(38, 4, 2)
    module = HardestContrastive(positives=10, candidates=12)
    torch.manual_seed(0)
    value = module(f, g, batch)
    torch.manual_seed(0)
    assert len(batch.positives) > 20
    anchors = batch.positives[drawn(len(batch.positives), 20, cpu)]
    pools = drawn(46, 24, cpu), drawn(38, 24, cpu)
    wanted = torch.stack(by_loops(f, g, batch.positives, anchors, pools)).sum()
    torch.testing.assert_close(value, wanted, rtol=1e-12, atol=0)
    for one, other in zip(*(torch.autograd.grad(x, (f, g)) for x in (value, wanted)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-14)


def test_nothing_to_learn_hides_no_features() -> None:
    # a zero that was made by a product with features would be NaN
    f = torch.full((2, 3), torch.inf, requires_grad=True)
    value = HardestContrastive()(f, f, pair_batch(*DEGENERATE["no positives"], 0.5))
    value.backward()
    assert value == 0
    assert not f.grad.any()
