"""InfoNCE against its formula, one match at a time; what batches without matches do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pcnn.losses.descriptors import common_places
from pcnn.losses.info_nce import InfoNCE, info_nce
from tests.losses.pairs import pair_batch, unit_rows
from tests.losses.test_hardest_contrastive import DEGENERATE


def by_loops(f: Tensor, g: Tensor, negative: Tensor, drawn: Tensor, temperature: float) -> Tensor:
    """-log of the share of the own end, by exponentials of one pair of clouds [K, C]."""
    each = []
    cosine = f @ g.T
    for side, far in ((cosine, negative), (cosine.T, negative.T)):
        for i in range(len(f)):
            if not drawn[i]:
                continue
            own = torch.exp(side[i, i] / temperature)
            others = sum(torch.exp(side[i, k] / temperature) for k in range(len(f)) if far[i, k])
            each.append(-torch.log(own / (own + others)))
    return torch.stack(each).mean()


def test_equals_the_formula_with_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    f, g = unit_rows(9, 4, 1), unit_rows(9, 4, 2)
    drawn = torch.arange(9) < 7
    negative = (torch.rand(9, 9, generator=generator) < 0.6) & drawn & drawn[:, None]
    negative.fill_diagonal_(False)
    negative[3] = False  # an end without any
    found = info_nce(torch.cdist(f, g)[None], drawn[None], negative[None], 0.2)
    wanted = by_loops(f, g, negative, drawn, 0.2)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    # features are of unit length: what counts is the slope along the sphere
    for side, one, other in zip(
        (f, g), torch.autograd.grad(found, (f, g)), torch.autograd.grad(wanted, (f, g)), strict=True
    ):
        along = [slope - (slope * side).sum(1, keepdim=True) * side for slope in (one, other)]
        torch.testing.assert_close(*along, rtol=1e-9, atol=1e-14)


def test_negatives_are_far_ends_of_the_same_pair() -> None:
    generator = torch.Generator().manual_seed(3)
    sources = [torch.rand(n, 3, generator=generator) * 3 for n in (9, 6)]
    targets = [source + 0.01 for source in sources]
    batch = pair_batch(sources, targets, 0.1, voxel_size=0.4)
    assert batch.positives.tolist() == [[i, i] for i in range(15)]
    f, g = unit_rows(15, 8, 1), unit_rows(15, 8, 2)
    value = InfoNCE(0.2, safe_radius=3.0)(f, g, batch)
    parts = []
    for rows in (slice(0, 9), slice(9, 15)):
        gap = torch.cdist(batch.source_places[rows], batch.target_places[rows])
        everything = torch.ones(len(gap), dtype=torch.bool)
        parts.append(len(gap) * by_loops(f[rows], g[rows], gap > 1.2, everything, 0.2))
    torch.testing.assert_close(value, sum(parts, torch.zeros(())) / 15, rtol=1e-9, atol=0)


def test_matches_of_one_feature_cannot_be_told_apart() -> None:
    feature = torch.nn.functional.normalize(torch.ones(6, 4, dtype=torch.float64), dim=1)
    places = torch.arange(6.0)[:, None] * torch.tensor([[1.0, 0, 0]])
    value = InfoNCE(safe_radius=0.5)(feature, feature, pair_batch([places], [places], 0.1))
    assert float(value) == pytest.approx(math.log(6))


@pytest.mark.parametrize("name", list(DEGENERATE))
@pytest.mark.parametrize("zero", [False, True], ids=["features", "zero features"])
def test_degenerate_batches_have_finite_gradients(name: str, zero: bool) -> None:
    batch = pair_batch(*DEGENERATE[name], 0.5)
    sides = [unit_rows(len(p), 4, 1) for p in (batch.source_places, batch.target_places)]
    if zero:
        sides = [torch.zeros_like(side).requires_grad_() for side in sides]
    value = InfoNCE()(*sides, batch)
    value.backward()
    assert torch.isfinite(value)
    for side in sides:
        assert side.grad is not None
        assert torch.isfinite(side.grad).all()


def test_half_precision_is_computed_in_float32() -> None:
    places = torch.rand(20, 3, generator=torch.Generator().manual_seed(0)) * 9
    batch = pair_batch([places], [places], 0.1)
    f, g = (unit_rows(20, 16, n).detach().half() for n in (1, 2))
    value = InfoNCE()(f.requires_grad_(), g, batch)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, InfoNCE()(f.detach().float(), g.float(), batch))


def test_common_places_keep_pairs_apart_and_centimetres_true() -> None:
    generator = torch.Generator().manual_seed(0)
    sources = [torch.rand(n, 3, generator=generator) * 80 for n in (4, 0, 5)]
    batch = pair_batch(sources, sources, 0.1)
    turn = torch.tensor([[0.0, -1, 0, 2], [1, 0, 0, -1], [0, 0, 1, 5], [0, 0, 0, 1]])
    batch.transforms[:] = turn.double()
    batch.target_places = batch.source_places @ turn[:3, :3].T + turn[:3, 3]
    first, second = common_places(batch)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-4)
    assert float(torch.cdist(first[:4], second[4:]).min()) > 1e4


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"safe_radius": 0.0}, {"samples": 0}])
def test_settings_are_positive(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        InfoNCE(**wrong)
