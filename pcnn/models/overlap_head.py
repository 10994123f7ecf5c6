"""A second head of a descriptor network: where clouds overlap, and which descriptors find back.

A point lies in the other cloud where its descriptor and those of the points around it are like some
descriptor there. So the step between the clouds is a maximum over the other cloud's descriptors,
the one quantity that is trained to be alike across clouds: features of the coarsest level are not,
and attention to them, or by learnt projections, knows the rooms of its training. Attention by
distance within its own cloud sees the surroundings of a point.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Points of a cloud, evenly spread, that are looked at for all others.
ASKED = 1024
#: Distances within which points are looked at together, at the start of a training [voxels].
WIDTHS = (4.0, 8.0, 16.0)
#: Cosines of descriptors that the first layer finds between -1 and 1, nearly: mean and scale.
USUAL = (0.8, 8.0)
#: Of an attention to a point that is not there.
NEVER = -1e9


class Asked(NamedTuple):
    """Some points of every cloud of a batch."""

    rows: Tensor  # [B, K, D] of seen_by_head
    places: Tensor  # [B, K, 3] in voxels
    there: Tensor  # [B, K] bool: clouds may have fewer than K


class OverlapHead(nn.Module):
    """Scores of points: is the place in the other cloud, and does its descriptor find it there?"""

    def __init__(
        self, channels: int, descriptor: int, width: int = 64, dropout: float = 0.3
    ) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.norm = nn.LayerNorm(channels)
        self.dropout = nn.Dropout(dropout)
        around = 16  # numbers that a point shows to those around it
        self.own = nn.Linear(channels, width // 2)
        self.shown = nn.Linear(channels, around - 1)
        self.usual = nn.Parameter(torch.tensor(USUAL))
        self.widths = nn.Parameter(torch.tensor(WIDTHS).log())
        self.scores = nn.Sequential(
            nn.Linear(width // 2 + 2 + len(WIDTHS) * around, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(
        self, rows: Tensor, places: Tensor, own: Asked, other: Asked
    ) -> tuple[Tensor, Tensor]:
        """Score rows of clouds against the cloud that each is paired with."""
        with torch.autocast(rows.device.type, enabled=False):
            full = torch.promote_types(rows.dtype, torch.float32)
            rows, seen = rows.to(full), own.rows.to(full)
            alike, alike_there = (self._alike(side, other) for side in (rows, seen))
            shown = torch.cat([alike_there[:, :, None], self.shown(self._kept(seen))], 2)
            around = self._around(places, own, shown)  # [B, R, widths * 16]
            counted = own.there.to(full)
            mean = (alike_there * counted).sum(1) / counted.sum(1).clamp(min=1)  # [B]
            known = torch.stack([alike, mean[:, None].expand_as(alike)], 2)
            found = torch.cat([self.own(self._kept(rows)), known, around], 2)
            overlap, match = self.scores(found).unbind(2)
        return overlap, match

    def _kept(self, rows: Tensor) -> Tensor:
        kept: Tensor = self.dropout(self.norm(rows))
        return kept

    def _alike(self, rows: Tensor, other: Asked) -> Tensor:
        """Largest cosine [B, R] of each row with the points of the other cloud, shifted, scaled."""
        theirs = other.rows[:, :, -self.descriptor :].to(rows.dtype)
        cosine = rows[:, :, -self.descriptor :] @ theirs.mT  # [B, R, K]
        # a cloud without points is as unlike as can be
        most = cosine.masked_fill(~other.there[:, None], -1.0).amax(2)
        return (most - self.usual[0]) * self.usual[1]

    def _around(self, places: Tensor, own: Asked, shown: Tensor) -> Tensor:
        """Means [B, R, widths * C] of what points [B, K, C] show, nearer ones weighing more."""
        # weights exp(-|p - q|² / 2 w²) are those of an attention of (p, 1) to (q, -|q|² / 2) / w²
        there = own.there.to(shown.dtype)[:, :, None]
        ours = own.places.to(shown.dtype)
        middle = (ours * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)
        ours, places = (ours - middle) * there, places.to(shown.dtype) - middle
        near = torch.cat([ours, -ours.square().sum(2, keepdim=True) / 2], 2)  # [B, K, 4]
        key = near[:, None] / self.widths.exp().square()[:, None, None]  # [B, widths, K, 4]
        absent = F.pad((1 - there) * NEVER, (3, 0))[:, None]
        query = F.pad(places, (0, 1), value=1.0)[:, None]  # [B, 1, R, 4]
        number = len(self.widths)
        found = F.scaled_dot_product_attention(
            query.expand(-1, number, -1, -1),
            key + absent,
            shown[:, None].expand(-1, number, -1, -1),
            scale=1.0,
        )  # [B, widths, R, C]
        return found.transpose(1, 2).flatten(2)


def seen_by_head(merged: Tensor, descriptors: Tensor) -> Tensor:
    """Rows ``[N, D]`` that the head reads: features before the last layer, and unit descriptors."""
    full = torch.promote_types(descriptors.dtype, torch.float32)
    unit = F.normalize(descriptors.to(full), dim=1, eps=1e-8)
    return torch.cat([merged.to(unit.dtype), unit], 1)


def asked_points(rows: Tensor, places: Tensor, offsets: Tensor, most: int = ASKED) -> Asked:
    """Points of every cloud, evenly spread over its rows; nothing waits for the device."""
    sizes = offsets.diff()[:, None]  # [B, 1]
    place = torch.arange(most, device=offsets.device)
    there = place < sizes
    spread = offsets[:-1, None] + torch.where(sizes > most, place * sizes // most, place)
    if not len(rows):
        size = len(sizes)
        return Asked(
            rows.new_zeros(size, most, rows.shape[1]), places.new_zeros(size, most, 3), there
        )
    taken = torch.where(there, spread, 0)
    return Asked(rows[taken], places[taken], there)


def log_scores(
    head: OverlapHead, rows: tuple[Tensor, Tensor], places: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Logarithm of overlap times matchability, of every point of a pair of clouds."""
    asked = [
        asked_points(side, at, torch.tensor([0, len(side)], device=side.device))
        for side, at in zip(rows, places, strict=True)
    ]
    found = []
    for own in (0, 1):
        overlap, match = head(rows[own][None], places[own][None], asked[own], asked[1 - own])
        found.append((F.logsigmoid(overlap) + F.logsigmoid(match))[0])
    return found[0], found[1]
