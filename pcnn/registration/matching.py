"""Putative matches between the descriptors of pairs of clouds, and samples of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pcnn.registration.nearest import nearest_rows
from pcnn.registration.settings import Matching, Sampling

#: Rows [M] int64 of a source, and of their partners in the target.
Matches = tuple[Tensor, Tensor]


def match(
    sources: Sequence[Tensor], targets: Sequence[Tensor], matching: Matching = "one_way"
) -> list[Matches]:
    """Match every descriptor of the sources [N_b, C] with the nearest of their targets [M_b, C]."""
    index = nearest_rows(sources, targets)  # [B, N]
    number = index.shape[1]
    rows = torch.arange(number, device=index.device).expand_as(index)
    sizes = torch.tensor(list(map(len, sources)))[:, None]
    keep = rows < sizes.to(index.device, non_blocking=True)
    if matching == "mutual":
        keep &= nearest_rows(targets, sources).gather(1, index) == rows
    # those that are kept come first: a device need not tell how many before it goes on
    kept = torch.where(keep, rows, number).sort(1).values.clamp_(max=max(number - 1, 0))
    met = index.gather(1, kept)
    return [
        (one[:count], other[:count])
        for one, other, count in zip(kept, met, keep.sum(1).tolist(), strict=True)
    ]


def sampled_matches(
    sources: Sequence[Tensor],  # [N_b, C] descriptors of every pair
    targets: Sequence[Tensor],  # [M_b, C]
    samples: int | None,
    matching: Matching,
    sampling: Sampling,
    seeds: Sequence[int],  # of every pair
) -> list[Matches]:
    """Matches of a number of samples of every pair, drawn by a named rule."""
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    pairs = list(zip(sources, targets, strict=True))
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    first = samples if sampling == "random_points" else None  # drawn before they are matched
    rows = [
        [drawn(len(side), first, generator).to(side.device, non_blocking=True) for side in pair]
        for pair, generator in zip(pairs, generators, strict=True)
    ]
    found = [(side[:0], side[:0]) for side, _ in rows]
    some = [at for at, pair in enumerate(pairs) if all(map(len, pair))]
    given = [[pairs[at][end][rows[at][end]] for at in some] for end in (0, 1)]
    met = match(given[0], given[1], matching) if some else []
    for at, matches in zip(some, met, strict=True):
        one, other = (of[chosen] for of, chosen in zip(rows[at], matches, strict=True))
        if first is None and samples is not None and samples < len(one):
            kept = drawn(len(one), samples, generators[at])
            kept = kept.to(one.device, non_blocking=True)
            one, other = one[kept], other[kept]
        found[at] = one, other
    return found


def drawn(n: int, samples: int | None, generator: torch.Generator | None) -> Tensor:
    """Rows ``[min(n, samples)]`` of n, each at most once."""
    if samples is None or samples >= n:
        return torch.arange(n)
    return torch.randperm(n, generator=generator)[:samples]
