"""The head that scores points of pairs, and the loss that teaches it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pcnn.losses.overlap import OverlapLoss, partners_of
from pcnn.models.overlap_head import Asked, OverlapHead, log_scores
from pcnn.registration.positives import positive_pairs
from pcnn.registration.transforms import transform_points
from tests.tasks.pairs import Pairs, pairs_of, views

RADIUS = 0.15


def with_positives(batch: Pairs) -> Pairs:
    ends = batch.source_places, batch.source_offsets, batch.target_places, batch.target_offsets
    return batch.with_positives(*positive_pairs(*ends, batch.transforms, RADIUS))


def features_of(batch: Pairs, channels: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sides = batch.source_places, batch.target_places
    source, target = (torch.randn(len(side), channels, generator=generator) for side in sides)
    return F.normalize(source, dim=1), F.normalize(target, dim=1)


def head_of(channels: int = 8, descriptor: int = 8) -> OverlapHead:
    torch.manual_seed(1)
    return OverlapHead(channels, descriptor, width=16)


def asked(rows: Tensor, sizes: list[int]) -> Asked:
    there = torch.arange(rows.shape[1]) < torch.tensor(sizes)[:, None]
    return Asked(rows, 9 * torch.rand(*rows.shape[:2], 3).to(rows), there)


def test_scores_equal_sums_over_points_that_are_there() -> None:
    head = head_of(7, 3).double().eval()
    rows, own, other = (torch.randn(2, n, 7).double() for n in (5, 6, 4))
    places = 9 * torch.rand(2, 5, 3).double() + 1000  # a frame far from zero
    mine, theirs = asked(own, [6, 3]), asked(other, [4, 0])
    mine = mine._replace(places=mine.places + 1000)
    overlap, match = head(rows, places, mine, theirs)
    for b, (there, them) in enumerate(((6, 4), (3, 0))):
        # the most alike of the other cloud; of none the opposite
        cosines = [side[b, :, 4:] @ other[b, :them, 4:].T for side in (rows, own[:, :there])]
        unlike = [torch.full((len(side), 1), -1.0).double() for side in cosines]
        most = [
            torch.cat(pair, 1)[:, : them or 1].amax(1) for pair in zip(cosines, unlike, strict=True)
        ]
        alike, alike_there = ((one - head.usual[0]) * head.usual[1] for one in most)
        shown = torch.cat([alike_there[:, None], head.shown(head.norm(own[b, :there]))], 1)
        gap = torch.cdist(places[b], mine.places[b, :there])
        weights = [(-gap.square() / 2 / w**2).softmax(1) for w in (4.0, 8.0, 16.0)]
        known = torch.stack([alike, alike_there.mean().expand_as(alike)], 1)
        around = [weight @ shown for weight in weights]
        expected = head.scores(torch.cat([head.own(head.norm(rows[b])), known, *around], 1))
        torch.testing.assert_close(torch.stack([overlap[b], match[b]], 1), expected)


@pytest.mark.parametrize("geometry", ["voxel", "point"])
def test_targets_equal_brute_force(geometry: str) -> None:
    batch = with_positives(views([0, 1], geometry=geometry, points=600))
    features, hit = features_of(batch), 0.25
    sides = batch.source_places, batch.target_places
    offsets = batch.source_offsets, batch.target_offsets
    assert batch.positives is not None
    partners = partners_of(batch.positives, len(sides[0]), len(sides[1]))
    loss = OverlapLoss(samples=10_000, candidates=10_000)  # all rows of all clouds
    for own in (0, 1):
        rows = torch.arange(len(sides[own]))
        right = torch.zeros(len(rows), dtype=torch.bool)
        for b in range(2):
            part = [slice(*side[b : b + 2].tolist()) for side in offsets]
            placed = transform_points(batch.transforms[b], sides[0][part[0]].double())
            gap = torch.cdist(placed, sides[1][part[1]].double())
            alike = features[0][part[0]] @ features[1][part[1]].T
            if own:
                gap, alike = gap.T, alike.T
            overlaps = gap.amin(1) <= RADIUS
            assert torch.equal(partners[own][part[own]] >= 0, overlaps)
            nearest = gap.gather(1, alike.argmax(1, keepdim=True))[:, 0]
            right[part[own]] = overlaps & (nearest <= hit)
        size = int(offsets[own].diff().max())
        drawn = (offsets[own][:-1, None] + torch.arange(size)).clamp(max=len(rows) - 1)
        found = loss.right(own, features, batch, drawn, partners[own][drawn], hit)
        assert 5 < int(right.sum()) < len(right) - 5
        for b in range(2):
            some = slice(*offsets[own][b : b + 2].tolist())
            assert torch.equal(found[b, : some.stop - some.start], right[some])


def test_gradients() -> None:
    head = head_of().double()
    head.eval()  # no dropout
    rows, own, others = (torch.randn(2, n, 8).double().requires_grad_() for n in (2, 3, 4))
    places, sides = 9 * torch.rand(2, 2, 3).double(), (asked(own, [3, 2]), asked(others, [4, 0]))

    def scored(*given: Tensor) -> Any:
        parts = [side._replace(rows=new) for side, new in zip(sides, given[1:], strict=True)]
        return head(given[0], places, *parts)

    assert torch.autograd.gradcheck(scored, (rows, own, others))
    # and those of the loss reach every parameter and the rows of both clouds
    batch = with_positives(views([0], points=300))
    ends = tuple(side.double().requires_grad_() for side in features_of(batch))
    OverlapLoss(64, 64)(head, ends, features_of(batch), batch, 0.2).loss.backward()
    for name, one in (*head.named_parameters(), ("source", ends[0]), ("target", ends[1])):
        assert one.grad is not None, name
        assert one.grad.isfinite().all(), name
        assert one.grad.abs().sum() > 0, name


@pytest.mark.parametrize("sizes", [(0, 200), (200, 0), (0, 0), (200, 200)])
def test_clouds_without_points_or_overlap(sizes: tuple[int, int]) -> None:
    clouds = [torch.rand(size, 3) for size in sizes]
    clouds[1] = clouds[1] + 50
    batch = with_positives(pairs_of(clouds[:1], clouds[1:], [torch.eye(4).double()], 0.1))
    head, features = head_of(), features_of(batch)
    found = OverlapLoss(32, 32)(head, features, features, batch, 0.2)
    found.loss.backward()
    assert found.loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in head.parameters())
    assert found.counts[:, :, [0, 2]].sum() == 0
    places = batch.source_places / 0.1, batch.target_places / 0.1
    scores = log_scores(head.eval(), features, places)
    assert [len(side) for side in scores] == [len(side) for side in features]
    assert all(bool((side <= 0).all()) for side in scores)
