"""Samples of the matches of every pair of clouds, and how their ends stand to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pcnn.losses.descriptors import common_places, full_precision


@dataclass(frozen=True)
class SampledEnds:
    """Up to K matches of each of B pairs, every source end against every target end.

    Attributes:
        distance: [B, K, K] between the features of source ends (rows) and target ends (columns).
        drawn: [B, K] bool; a pair may have fewer matches than K.
        positive: [B, K, K] bool, both ends drawn and within the positive radius of each other under
            the true transform.
        negative: [B, K, K] bool, both drawn and beyond the safe radius. What lies between the radii
            is neither.
    """

    distance: Tensor
    drawn: Tensor
    positive: Tensor
    negative: Tensor

    @classmethod
    def of(
        cls,
        source: Tensor,
        target: Tensor,
        batch: Any,
        samples: int,
        positive_radius: float,
        safe_radius: float,
    ) -> SampledEnds:
        """Draw matches from torch's generator of the device; nothing waits for the device.

        Args:
            source: [N, C] features of the sources' rows; half precision is computed in float32.
            target: [M, C] features of the targets' rows.
            batch: `positives` [T, 2] int64, T > 0 rows of matches, pair after pair;
                `positive_offsets` [B + 1]; `voxel_size` [m]; and what `common_places` reads.
            samples: K.
            positive_radius: in voxels.
            safe_radius: in voxels.

        Returns:
            The ends.
        """
        place, drawn = samples_of_pairs(batch.positive_offsets, len(batch.positives), samples)
        i, j = batch.positives[place].unbind(2)  # [B, K]
        ours, theirs = common_places(batch)
        gap = torch.linalg.vector_norm(ours[i][:, :, None] - theirs[j][:, None], dim=3)  # [B, K, K]
        both = drawn[:, :, None] & drawn[:, None]
        return cls(
            distances(full_precision(source)[i], full_precision(target)[j]),
            drawn,
            both & (gap <= positive_radius * batch.voxel_size),
            both & (gap > safe_radius * batch.voxel_size),
        )


def samples_of_pairs(offsets: Tensor, total: int, samples: int) -> tuple[Tensor, Tensor]:
    """Draw rows of every pair's own range, each at most once; nothing waits for the device.

    Args:
        offsets: [B + 1] int64, rows of pair b are ``offsets[b]..offsets[b + 1]``.
        total: ``offsets[-1]``, positive.
        samples: K.

    Returns:
        Rows [B, K] int64, and [B, K] bool which of them are there; pairs may have fewer than K.
    """
    rows = torch.arange(total, device=offsets.device)
    pair = torch.searchsorted(offsets[1:].contiguous(), rows, right=True)
    # rows of a pair in random order, where the pair's rows lie
    shuffled = (pair + torch.rand(total, dtype=torch.float64, device=offsets.device)).argsort()
    place = offsets[:-1, None] + torch.arange(samples, device=offsets.device)
    return shuffled[place.clamp(max=total - 1)], place < offsets[1:, None]


def distances(source: Tensor, target: Tensor) -> Tensor:
    """Distances [B, K, K] between features [B, K, C], with slopes that are finite at 0."""
    with torch.autocast(source.device.type, enabled=False):
        squares = source.square().sum(2)[:, :, None] + target.square().sum(2)[:, None]
        # at 0 the slope of the root is infinite; clamped, there is none
        return (squares - 2 * source @ target.mT).clamp(min=1e-12).sqrt()
