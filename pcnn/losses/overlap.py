"""The loss of a head that scores points of pairs: overlap, and matchability where they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.losses.descriptors import full_precision, no_loss, places_of_pairs, samples_of_pairs
from pcnn.models.overlap_head import OverlapHead, asked_points
from pcnn.ranges import Count


@dataclass(frozen=True, eq=False)
class HeadLoss:
    """The loss of a head for a batch, and how its scores agree with the truth."""

    loss: Tensor  # scalar, with a path to every parameter of the head
    counts: Tensor


class OverlapLoss(nn.Module):
    """Binary cross entropy of overlap and of matchability, both classes weighing the same.

    Of every cloud up to ``samples`` rows are drawn. A row overlaps if it is in a positive of the
    batch. Matchability is asked of rows that overlap: the row of the other cloud with the nearest
    descriptor, of its partner and up to ``candidates`` random ones, lies within the hit distance of
    the row's true place.

    Args:
        samples: rows of a cloud that are scored.
        candidates: rows of the other cloud among which descriptors are looked for.

    Source: Huang et al., "Predator", CVPR 2021, Eq. 5 to 8 (overlap and matchability losses). It
    looks for descriptors among points in the overlap alone.
    """

    def __init__(self, samples: Count = 1024, candidates: Count = 2048) -> None:
        super().__init__()
        self.samples, self.candidates = samples, candidates
        check_fields(self)

    def forward(
        self,
        head: OverlapHead,
        rows: Sequence[Tensor],
        features: Sequence[Tensor],
        batch: Any,
        hit_distance: float,
    ) -> HeadLoss:
        """The loss of a head of rows [N, D] and [M, D], with descriptors [N, C] and [M, C] beside.

        Of the batch `positives` [T, 2] int64, rows of matches, `source_offsets` and
        `target_offsets` [B + 1], `voxel_size` [m], and what `places_of_pairs` reads.
        """
        offsets = batch.source_offsets, batch.target_offsets
        places = [side / batch.voxel_size for side in (batch.source_places, batch.target_places)]
        asked = [asked_points(*one) for one in zip(rows, places, offsets, strict=True)]
        partners = partners_of(batch.positives, len(rows[0]), len(rows[1]))
        lost = no_loss(*head.parameters(), *rows)
        counts = torch.zeros(len(offsets[0]) - 1, 2, 3, dtype=torch.int64, device=lost.device)
        for own, other in ((0, 1), (1, 0)):
            if not len(rows[own]):
                continue
            drawn, there = samples_of_pairs(offsets[own], len(rows[own]), self.samples)  # [B, S]
            partner = partners[own][drawn]
            overlaps = there & (partner >= 0)
            right = self.right(own, features, batch, drawn, partner, hit_distance)
            logits = head(rows[own][drawn], places[own][drawn], asked[own], asked[other])
            for number, (logit, truth, counted) in enumerate(
                zip(logits, (overlaps, right), (there, overlaps), strict=True)
            ):
                lost = lost + balanced_cross_entropy(logit, truth, counted) / 2
                counts[:, number] += counts_of(logit, truth, counted)
        return HeadLoss(lost, counts)

    @torch.no_grad()
    def right(
        self,
        own: int,
        features: Sequence[Tensor],
        batch: Any,
        drawn: Tensor,  # [B, S] int64, rows
        partner: Tensor,  # [B, S] int64, a row of the other cloud at the same place, or -1
        hit_distance: float,
    ) -> Tensor:
        """Rows [B, S] of sources (own: 0) or targets (1) whose nearest descriptor is right."""
        ours, theirs = features[own], features[1 - own]
        if not len(theirs):
            return torch.zeros_like(drawn, dtype=torch.bool)
        offsets = batch.target_offsets if own == 0 else batch.source_offsets
        found, there = samples_of_pairs(offsets, len(theirs), self.candidates)  # [B, H]
        with torch.autocast(ours.device.type, enabled=False):
            f = full_precision(ours[drawn])  # [B, S, C]
            alike = f @ full_precision(theirs[found]).mT
            best = alike.masked_fill(~there[:, None], -torch.inf).max(2)  # [B, S]
            true = (f * full_precision(theirs[partner.clamp(min=0)])).sum(2)
        sides = (drawn, found) if own == 0 else (found, drawn)
        places = places_of_pairs(batch, *sides)  # [B, ., 3]
        near = places[1 - own].gather(1, best.indices[:, :, None].expand(-1, -1, 3))
        gap = (places[own] - near).norm(dim=2)
        hit = (gap <= hit_distance) & best.values.isfinite()
        return (partner >= 0) & (hit | (true >= best.values))


def partners_of(positives: Tensor, sources: int, targets: int) -> tuple[Tensor, Tensor]:
    """A row of the other side at the place of every row, the last one listed; -1 where none is."""
    found = []
    for own, rows in ((0, sources), (1, targets)):
        none = positives.new_full((rows,), -1)
        found.append(none.scatter_reduce_(0, positives[:, own], positives[:, 1 - own], "amax"))
    return found[0], found[1]


def balanced_cross_entropy(logits: Tensor, truth: Tensor, counted: Tensor) -> Tensor:
    """Mean over both classes of the mean binary cross entropy in a class."""
    each = F.binary_cross_entropy_with_logits(
        full_precision(logits), truth.to(full_precision(logits).dtype), reduction="none"
    )
    total = each.new_zeros(())
    for entries in (counted & truth, counted & ~truth):
        total = total + torch.where(entries, each, 0).sum() / entries.sum().clamp(min=1)
    return total / 2


def counts_of(logits: Tensor, truth: Tensor, counted: Tensor) -> Tensor:
    """Counts [B, 3] int64 of [B, S]: true positives, false positives, false negatives."""
    positive = (logits.detach() > 0) & counted
    parts = positive & truth, positive & ~truth, counted & truth & ~positive
    return torch.stack([part.sum(1) for part in parts], 1)
