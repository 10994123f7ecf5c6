"""Putative matches between the descriptors of two clouds, and samples of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.nearest import nearest_descriptors
from pcnn.registration.settings import Matching, Sampling


@dataclass(frozen=True, eq=False)
class Matches:
    """Pairs of points that may belong together."""

    source: Tensor  # [M] int64, rows of the source cloud
    target: Tensor  # [M] int64, rows of the target cloud
    distance: Tensor  # [M] float32 between the two descriptors; small is good

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Tensor) -> Matches:
        """The matches of some rows."""
        return Matches(self.source[rows], self.target[rows], self.distance[rows])


def match(source: Tensor, target: Tensor, matching: Matching = "one_way") -> Matches:
    """Match every source descriptor with its nearest target descriptor."""
    if not bool(torch.isfinite(source).all() & torch.isfinite(target).all()):
        raise ValueError("descriptors hold NaN or infinite numbers: nothing is nearest to them")
    distance, index = nearest_descriptors(source, target)
    rows = torch.arange(len(source), device=source.device)
    matches = Matches(rows, index, distance)
    if matching == "one_way":
        return matches
    _, back = nearest_descriptors(target, source)
    return matches.take((back[index] == rows).nonzero().squeeze(1))


def sampled_matches(
    source: Tensor,  # [N, C] descriptors
    target: Tensor,  # [M, C] descriptors
    samples: int | None,
    matching: Matching,
    sampling: Sampling,
    generator: torch.Generator | None = None,
) -> Matches:
    """Matches of a number of samples, drawn by a named rule."""
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if not len(source) or not len(target):
        none = torch.zeros(0, dtype=torch.int64, device=source.device)
        return Matches(none, none, source.new_zeros(0, dtype=torch.float32))
    if samples is not None and sampling == "random_points":
        rows = [drawn(len(d), samples, generator).to(d.device) for d in (source, target)]
        found = match(source[rows[0]], target[rows[1]], matching)
        return Matches(rows[0][found.source], rows[1][found.target], found.distance)
    found = match(source, target, matching)
    if samples is None or samples >= len(found):
        return found
    if sampling == "top_k":
        return found.take(found.distance.argsort(stable=True)[:samples])
    return found.take(drawn(len(found), samples, generator).to(found.source.device))


def drawn(n: int, samples: int, generator: torch.Generator | None) -> Tensor:
    """Rows ``[min(n, samples)]`` of n, each at most once."""
    if samples >= n:
        return torch.arange(n)
    return torch.randperm(n, generator=generator)[:samples]
