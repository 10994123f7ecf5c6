"""Losses of descriptors: hardest-contrastive and InfoNCE."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.ranges import Count, Length, NonNegative, Positive

#: Entries of a block of distances that are looked through at once.
BLOCK = 1 << 25

#: Under the root of a squared distance, whose slope is infinite at 0.
UNDER_ROOT = 1e-7


class HardestContrastive(nn.Module):
    """``L = L+ + weight * L-`` on random matches and random candidates of the whole batch.

    See `hardest_contrastive` for the two terms. Each call draws, without replacement,
    ``positives * B`` of the batch's matches and ``candidates * B`` rows on either side, B the pairs
    of clouds of the batch; a negative may belong to another scene. A batch without matches gives 0
    with gradient 0. `terms` holds the two terms of the last call, detached.

    Args:
        positives: matches a pair of clouds (FCGF: 1024).
        candidates: rows a pair of clouds and side among which negatives are mined (FCGF: 256).
        positive_margin: of the squared distance of a match.
        negative_margin: of the distance to a negative.
        weight: of the negative term.

    Source: Choy, Park, Koltun, "Fully Convolutional Geometric Features", 2019, Eq. 3, with the
    sampling of its training code.
    """

    def __init__(
        self,
        positives: Count = 1024,
        candidates: Count = 256,
        positive_margin: NonNegative = 0.1,
        negative_margin: NonNegative = 1.4,
        weight: NonNegative = 1.0,
    ) -> None:
        super().__init__()
        self.positives, self.candidates = positives, candidates
        self.positive_margin, self.negative_margin = positive_margin, negative_margin
        self.weight = weight
        self.terms: dict[str, Tensor] = {}
        check_fields(self)

    def forward(self, source: Tensor, target: Tensor, batch: Any) -> Tensor:
        """The loss of features of unit length, [N, C] of the sources' rows, [M, C] of the targets'.

        Of the batch `positives` [T, 2] int64, rows of matches, and `batch_size` B.
        """
        pairs, size = batch.positives, batch.batch_size
        if len(pairs) == 0:
            zero = no_loss(source, target)
            self.terms = {"positive": zero.detach(), "negative": zero.detach()}
            return zero
        anchors = pairs
        if len(pairs) > self.positives * size:  # the order of all of them would not matter
            anchors = pairs[drawn(len(pairs), self.positives * size, pairs.device)]
        source_pool, target_pool = (
            drawn(len(side), self.candidates * size, side.device) for side in (source, target)
        )
        positive, negative = hardest_contrastive(
            source,
            target,
            pairs,
            anchors,
            source_pool,
            target_pool,
            self.positive_margin,
            self.negative_margin,
        )
        self.terms = {"positive": positive.detach(), "negative": negative.detach()}
        return positive + self.weight * negative


def hardest_contrastive(
    source: Tensor,  # [N, C] features; half precision is computed in float32
    target: Tensor,  # [M, C]
    pairs: Tensor,  # [T, 2] int64, all listed matches: rows of source and target
    anchors: Tensor,  # [P, 2] int64, P > 0 of them
    source_pool: Tensor,  # [H] int64, H > 0 rows of the source
    target_pool: Tensor,  # [H] int64 of the target
    positive_margin: float = 0.1,
    negative_margin: float = 1.4,
) -> tuple[Tensor, Tensor]:
    """The two terms of the hardest-contrastive loss, for given samples.

    ``L+ = mean_(i,j) relu(|f_i - g_j|² - m+)`` over the anchors (the margin is one of squared
    distances), and ``L- = (mean_i relu(m- - d(f_i, g_n(i)))² + mean_j relu(m- - d(g_j, f_n(j)))²)
    / 2`` with ``d(a, b) = sqrt(|a - b|² + 1e-7)`` and n the nearest row of the other side's pool.
    A nearest row that is a listed match of its anchor is left out of the mean. A mean over nothing
    is 0, with gradient 0.
    """
    source, target = full_precision(source), full_precision(target)
    i, j = anchors.unbind(1)  # [P]
    f, g = source[i], target[j]
    positive = F.relu((f - g).square().sum(1) - positive_margin).mean()

    # numbers of listed matches: row of source * M + row of target
    listed = (pairs[:, 0] * len(target) + pairs[:, 1]).sort().values
    terms = []
    for own, side, pool, number in (
        (f, target, target_pool, lambda k: i * len(target) + k),
        (g, source, source_pool, lambda k: k * len(target) + j),
    ):
        other = pool[_nearest(own, side[pool])]
        distance = ((own - side[other]).square().sum(1) + UNDER_ROOT).sqrt()
        wrong = ~_among(number(other), listed)
        hinge = F.relu(negative_margin - distance).square() * wrong
        terms.append(hinge.sum() / wrong.sum().clamp(min=1))
    return positive, (terms[0] + terms[1]) / 2


@torch.no_grad()
def _nearest(features: Tensor, pool: Tensor) -> Tensor:
    """Row [P] of the pool [H, C] that is nearest to each feature [P, C]."""
    with torch.autocast(features.device.type, enabled=False):
        square = pool.square().sum(1)  # [H]
        size = max(BLOCK // len(pool), 1)
        parts = [square - 2 * part @ pool.T for part in features.split(size)]  # [p, H] each
        return torch.cat([part.min(1).indices for part in parts])


def _among(numbers: Tensor, listed: Tensor) -> Tensor:
    """Which numbers [P] occur in a sorted list [T], T > 0."""
    place = torch.searchsorted(listed, numbers).clamp(max=len(listed) - 1)
    return listed[place] == numbers


class InfoNCE(nn.Module):
    """InfoNCE of the matches of every pair of clouds, against random rows of the other cloud.

    Up to ``samples`` matches and ``candidates`` rows of the whole cloud on either side are drawn of
    each pair. The ones beyond the safe radius of the true place of a match are its negatives;
    nearer ones count nowhere. The loss is the mean of both directions over all drawn matches; see
    `info_nce`. A batch without matches gives 0 with gradient 0.

    Args:
        temperature: τ.
        safe_radius: in voxels.
        samples: matches a pair of clouds.
        candidates: rows a pair of clouds and side.

    Source: Xie et al., "PointContrast", ECCV 2020, Eq. 3 (PointInfoNCE, τ = 0.07). Its negatives
    are the other matches' ends, of the whole batch and at any distance.
    """

    def __init__(
        self,
        temperature: Positive = 0.07,
        safe_radius: Length = 4.0,
        samples: Count = 256,
        candidates: Count = 1024,
    ) -> None:
        super().__init__()
        self.temperature, self.safe_radius = temperature, safe_radius
        self.samples, self.candidates = samples, candidates
        check_fields(self)

    def forward(self, source: Tensor, target: Tensor, batch: Any) -> Tensor:
        """The loss of features of unit length, [N, C] of the sources' rows, [M, C] of the targets'.

        Of the batch `positives` [T, 2] int64, rows of matches, pair after pair, `positive_offsets`,
        `source_offsets` and `target_offsets` [B + 1], `voxel_size` [m], and what `places_of_pairs`
        reads.
        """
        if len(batch.positives) == 0:
            return no_loss(source, target)
        place, drawn = samples_of_pairs(batch.positive_offsets, len(batch.positives), self.samples)
        i, j = batch.positives[place].unbind(2)  # [B, K]
        # candidates of the target, then of the source
        theirs, in_target = samples_of_pairs(batch.target_offsets, len(target), self.candidates)
        ours, in_source = samples_of_pairs(batch.source_offsets, len(source), self.candidates)
        # each side is gathered once: the gradient of a gather sorts its rows
        rows = torch.cat([i, ours], 1), torch.cat([j, theirs], 1)  # [B, K + H]
        sizes = [self.samples, self.candidates]
        f = full_precision(source)[rows[0]].split(sizes, 1)
        g = full_precision(target)[rows[1]].split(sizes, 1)
        p, q = (side.split(sizes, 1) for side in places_of_pairs(batch, *rows))
        safe = (self.safe_radius * batch.voxel_size) ** 2
        total = f[0].new_zeros(())
        for own, other, place, candidates, there in (
            (f, g, p[0], q[1], in_target),
            (g, f, q[0], p[1], in_source),
        ):
            negative = there[:, None] & (squared_gaps(place, candidates) > safe)
            total = total + info_nce(own[0], other[0], other[1], negative, drawn, self.temperature)
        return total / 2


def info_nce(
    anchors: Tensor,  # [B, K, C] features f
    partners: Tensor,  # [B, K, C] g, their matches' in the other cloud
    candidates: Tensor,  # [B, H, C] h, of the other cloud
    negative: Tensor,  # [B, K, H] bool, N
    drawn: Tensor,  # [B, K] bool, which matches are there
    temperature: float,
) -> Tensor:
    """InfoNCE of features of unit length, one direction.

    ``L_i = -log(exp(f_i.g_i / τ) / (exp(f_i.g_i / τ) + sum_(k in N_i) exp(f_i.h_k / τ)))``.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        right = (anchors * partners).sum(2, keepdim=True) / temperature  # [B, K, 1]
        wrong = (anchors @ candidates.mT / temperature).masked_fill(~negative, -torch.inf)
        # the own term keeps the sum above 0, also of a match that is not there
        each = torch.cat([right, wrong], dim=2).logsumexp(2) - right[:, :, 0]
        return (each * drawn).sum() / drawn.sum().clamp(min=1)


def no_loss(*features: Tensor) -> Tensor:
    """A zero that hangs on the features, with gradient 0 everywhere.

    Every parameter then has a gradient, on one rank of several too, and NaN or infinite features do
    not reach it.
    """
    return torch.stack([full_precision(side[:0]).sum() for side in features]).sum()


def full_precision(features: Tensor) -> Tensor:
    """Features in float32 where they are in half precision, else as they are."""
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features


def places_of_pairs(batch: Any, source_rows: Tensor, target_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Places of some rows of every pair of clouds, in the frame of its target."""
    transforms = batch.transforms[:, :3].double()  # [B, 3, 4]
    ours = batch.source_places[source_rows].double()
    moved = ours @ transforms[:, :, :3].mT + transforms[:, None, :, 3]
    return moved, batch.target_places[target_rows].double()


def squared_gaps(places: Tensor, others: Tensor) -> Tensor:
    """Squared distances [..., K, H] between places [..., K, 3] and [..., H, 3].

    Axis by axis: `torch.cdist` takes some fifty times as long for three of them.
    """
    x, y, z = (places[..., :, None, axis] - others[..., None, :, axis] for axis in range(3))
    return x.square_().addcmul_(y, y).addcmul_(z, z)


def drawn(n: int, samples: int, device: torch.device) -> Tensor:
    """Rows ``[min(n, samples)]`` int64 of n, each at most once, by the device's own generator."""
    return torch.randperm(n, device=device)[:samples]


def samples_of_pairs(offsets: Tensor, total: int, samples: int) -> tuple[Tensor, Tensor]:
    """Draw rows of every pair's own range, each at most once; nothing waits for the device."""
    rows = torch.arange(total, device=offsets.device)
    pair = torch.searchsorted(offsets[1:].contiguous(), rows, right=True)
    # rows of a pair in random order, where the pair's rows lie
    shuffled = (pair + torch.rand(total, dtype=torch.float64, device=offsets.device)).argsort()
    place = offsets[:-1, None] + torch.arange(samples, device=offsets.device)
    return shuffled[place.clamp(max=total - 1)], place < offsets[1:, None]
