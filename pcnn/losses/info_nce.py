"""InfoNCE of descriptors: every match has to be found among far places of the other cloud."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.losses.descriptors import (
    full_precision,
    no_loss,
    places_of_pairs,
    samples_of_pairs,
    squared_gaps,
)
from pcnn.ranges import Count, Length, Positive


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
