"""Hardest-contrastive loss of descriptors: every match against its nearest wrong partner."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.losses.descriptors import common_places, drawn, full_precision, no_loss, squared_gaps
from pcnn.ranges import Count, Length, NonNegative

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
        safe_radius: in voxels, of rows around a match's place that are no negatives (the paper);
            None: listed matches alone are none (its code).

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
        safe_radius: Length | None = None,
    ) -> None:
        super().__init__()
        self.positives, self.candidates = positives, candidates
        self.safe_radius = safe_radius
        self.positive_margin, self.negative_margin = positive_margin, negative_margin
        self.weight = weight
        self.terms: dict[str, Tensor] = {}
        check_fields(self)

    def forward(self, source: Tensor, target: Tensor, batch: Any) -> Tensor:
        """The loss of features of unit length, [N, C] of the sources' rows, [M, C] of the targets'.

        Of the batch `positives` [T, 2] int64, rows of matches, and `batch_size` B; for a safe
        radius also what `common_places` reads, and `voxel_size` [m].
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
        places, safe_radius = None, 0.0
        if self.safe_radius is not None:
            places, safe_radius = common_places(batch), self.safe_radius * batch.voxel_size
        positive, negative = hardest_contrastive(
            source,
            target,
            pairs,
            anchors,
            source_pool,
            target_pool,
            self.positive_margin,
            self.negative_margin,
            places,
            safe_radius,
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
    places: tuple[Tensor, Tensor] | None = None,
    safe_radius: float = 0.0,  # [m]
) -> tuple[Tensor, Tensor]:
    """The two terms of the hardest-contrastive loss, for given samples.

    ``L+ = mean_(i,j) relu(|f_i - g_j|² - m+)`` over the anchors (the margin is one of squared
    distances), and ``L- = (mean_i relu(m- - d(f_i, g_n(i)))² + mean_j relu(m- - d(g_j, f_n(j)))²)
    / 2`` with ``d(a, b) = sqrt(|a - b|² + 1e-7)`` and n the nearest row of the other side's pool.
    Rows within the safe radius of an anchor's end are not looked at. A nearest row that is a listed
    match of its anchor is left out of the mean, and so is an anchor with nothing to look at. A mean
    over nothing is 0, with gradient 0.
    """
    source, target = full_precision(source), full_precision(target)
    i, j = anchors.unbind(1)  # [P]
    f, g = source[i], target[j]
    positive = F.relu((f - g).square().sum(1) - positive_margin).mean()

    # numbers of listed matches: row of source * M + row of target
    listed = (pairs[:, 0] * len(target) + pairs[:, 1]).sort().values
    near_i = near_j = None
    if places is not None:
        near_i = places[0][i], places[1][target_pool], safe_radius
        near_j = places[1][j], places[0][source_pool], safe_radius
    terms = []
    for own, side, pool, near, number in (
        (f, target, target_pool, near_i, lambda k: i * len(target) + k),
        (g, source, source_pool, near_j, lambda k: k * len(target) + j),
    ):
        place, found = _nearest(own, side[pool], near)
        other = pool[place]
        distance = ((own - side[other]).square().sum(1) + UNDER_ROOT).sqrt()
        wrong = found & ~_among(number(other), listed)
        hinge = F.relu(negative_margin - distance).square() * wrong
        terms.append(hinge.sum() / wrong.sum().clamp(min=1))
    return positive, (terms[0] + terms[1]) / 2


@torch.no_grad()
def _nearest(
    features: Tensor, pool: Tensor, near: tuple[Tensor, Tensor, float] | None
) -> tuple[Tensor, Tensor]:
    """Row [P] of the pool [H, C] that is nearest to each feature [P, C], and if there is one."""
    # with places [P, 3], [H, 3] and a radius, rows within it are passed over
    places, found = [], []
    with torch.autocast(features.device.type, enabled=False):
        square = pool.square().sum(1)  # [H]
        size = max(BLOCK // len(pool), 1)
        for first in range(0, len(features), size):
            part = square - 2 * features[first : first + size] @ pool.T  # [p, H]
            if near is not None:
                ends, rows, radius = near
                gap = squared_gaps(ends[first : first + size], rows)
                part = part.masked_fill(gap <= radius**2, torch.inf)
            least = part.min(1)
            places.append(least.indices)
            found.append(least.values < torch.inf)
    return torch.cat(places), torch.cat(found)


def _among(numbers: Tensor, listed: Tensor) -> Tensor:
    """Which numbers [P] occur in a sorted list [T], T > 0."""
    place = torch.searchsorted(listed, numbers).clamp(max=len(listed) - 1)
    return listed[place] == numbers
