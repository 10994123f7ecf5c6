"""Putative matches between the descriptors of two clouds, and samples of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pcnn.registration.nearest import nearest_descriptors
from pcnn.registration.settings import MATCHINGS, SAMPLINGS


@dataclass(frozen=True, eq=False)
class Matches:
    """Pairs of points that may belong together.

    Args:
        source: [M] int64, rows of the source cloud.
        target: [M] int64, rows of the target cloud.
        distance: [M] float32 between the two descriptors; small is good.
    """

    source: Tensor
    target: Tensor
    distance: Tensor

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: Tensor) -> Matches:
        """The matches of some rows."""
        return Matches(self.source[rows], self.target[rows], self.distance[rows])


def match(source: Tensor, target: Tensor, matching: str = "one_way") -> Matches:
    """Match every source descriptor with its nearest target descriptor.

    Args:
        source: [N, C].
        target: [M, C].
        matching: ``one_way`` keeps all; ``mutual`` those whose target has them as its nearest.

    Raises:
        ValueError: another `matching`, or descriptors as `nearest_descriptors` refuses them.
    """
    if matching not in MATCHINGS:
        raise ValueError(f"matching must be one of {', '.join(MATCHINGS)}, got {matching!r}")
    distance, index = nearest_descriptors(source, target)
    rows = torch.arange(len(source), device=source.device)
    matches = Matches(rows, index, distance)
    if matching == "one_way":
        return matches
    _, back = nearest_descriptors(target, source)
    return matches.take((back[index] == rows).nonzero().squeeze(1))


def sampled_matches(
    source: Tensor,
    target: Tensor,
    samples: int | None,
    matching: str,
    sampling: str,
    generator: torch.Generator | None = None,
) -> Matches:
    """Matches of a number of samples, drawn by a named rule.

    The rule matters: the best matches hold more right ones the fewer they are, random ones do not.

    Args:
        source: [N, C] descriptors.
        target: [M, C] descriptors.
        samples: how many; None takes everything. Fewer are used where there are fewer.
        matching: ``one_way`` or ``mutual``.
        sampling: ``random_points`` draws that many points of each cloud before matching;
            ``random_matches`` that many of all matches; ``top_k`` the matches with the smallest
            distance of descriptors.
        generator: of the draws, on the CPU.

    Raises:
        ValueError: another rule, or fewer than one sample.
    """
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}")
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
