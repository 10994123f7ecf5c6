"""Circle loss of descriptors: all matches and all far places of a sample, each by its need."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.losses.descriptors import (
    distances,
    full_precision,
    no_loss,
    places_of_pairs,
    samples_of_pairs,
    squared_gaps,
)
from pcnn.ranges import Count, Length, NonNegative, Positive


class Circle(nn.Module):
    """Circle loss over samples of the matches of every pair of clouds.

    Up to ``samples`` matches (i, j) of each pair are drawn. Of the K x K combinations of their
    ends, those within the positive radius under the true transform are positives, those beyond the
    safe radius negatives, and the rest count nowhere; see `circle`. The loss is the mean of both
    directions, each over all ends of the batch that have both kinds; without any it is 0.

    Args:
        positive_radius: in voxels (Predator: 1.5 on 3DMatch, 0.7 on KITTI).
        safe_radius: in voxels (4 on 3DMatch, 2.5 on KITTI).
        samples: matches a pair of clouds (256 on 3DMatch, 512 on KITTI).
        scale: γ (24 on 3DMatch, 48 on KITTI).
        positive_margin: distance of features below which a positive asks for nothing.
        negative_margin: distance beyond which a negative asks for nothing.

    Source: Huang et al., "Predator", CVPR 2021, Eq. 8 and its settings; Bai et al., "D3Feat", 2020.
    """

    def __init__(
        self,
        positive_radius: Length = 1.5,
        safe_radius: Length = 4.0,
        samples: Count = 256,
        scale: Positive = 24.0,
        positive_margin: NonNegative = 0.1,
        negative_margin: NonNegative = 1.4,
    ) -> None:
        super().__init__()
        self.positive_radius, self.safe_radius = positive_radius, safe_radius
        self.samples, self.scale = samples, scale
        self.positive_margin, self.negative_margin = positive_margin, negative_margin
        check_fields(self)
        if positive_radius > safe_radius:
            raise ValueError(f"safe_radius={safe_radius}: below positive_radius={positive_radius}")

    def forward(self, source: Tensor, target: Tensor, batch: Any) -> Tensor:
        """The loss of features of unit length, [N, C] of the sources' rows, [M, C] of the targets'.

        Of the batch `positives` [T, 2] int64, rows of matches, pair after pair, `positive_offsets`
        [B + 1], `voxel_size` [m], and what `places_of_pairs` reads.
        """
        if len(batch.positives) == 0:
            return no_loss(source, target)
        place, drawn = samples_of_pairs(batch.positive_offsets, len(batch.positives), self.samples)
        i, j = batch.positives[place].unbind(2)  # [B, K]
        gap = squared_gaps(*places_of_pairs(batch, i, j))  # [B, K, K]
        both = drawn[:, :, None] & drawn[:, None]
        return circle(
            distances(full_precision(source)[i], full_precision(target)[j]),
            both & (gap <= (self.positive_radius * batch.voxel_size) ** 2),
            both & (gap > (self.safe_radius * batch.voxel_size) ** 2),
            self.scale,
            self.positive_margin,
            self.negative_margin,
        )


def circle(
    distance: Tensor,  # [B, K, K] between features of source ends (rows) and target ends (columns)
    positive: Tensor,  # [B, K, K] bool
    negative: Tensor,  # [B, K, K] bool, nowhere together with positive
    scale: float = 24.0,
    positive_margin: float = 0.1,
    negative_margin: float = 1.4,
) -> Tensor:
    """Circle loss of distances between features, mean of both directions.

    For an end i with positives P and negatives N, ``L_i = log(1 + sum_(j in P) exp(β_j (d_ij - m+))
    * sum_(k in N) exp(β_k (m- - d_ik))) / γ`` with ``β_j = γ relu(d_ij - m+)`` and ``β_k = γ
    relu(m- - d_ik)``, through which no gradient flows. The code of the paper lets combinations that
    are neither kind add 1 to either sum; here they are left out, as in the formula.
    """
    detached = distance.detach()
    pull = scale * F.relu(detached - positive_margin) * (distance - positive_margin)
    push = scale * F.relu(negative_margin - detached) * (negative_margin - distance)
    terms = []
    for dim in (2, 1):
        counts = (positive.any(dim) & negative.any(dim)).unsqueeze(dim)
        total = distance.new_zeros(())
        for weighted, kind in ((pull, positive), (push, negative)):
            # of an end that does not count nothing may be infinite: its slope would be NaN
            exponent = torch.where(kind, weighted, -torch.inf).where(counts, weighted * 0)
            total = total + exponent.logsumexp(dim, keepdim=True)
        each = F.softplus(total) / scale * counts
        terms.append(each.sum() / counts.sum().clamp(min=1))
    return (terms[0] + terms[1]) / 2
