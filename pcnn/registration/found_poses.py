"""Poses that a solver found on a device, and the solutions that the host makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pcnn.registration.solution import Candidates, Solution
from pcnn.registration.transforms import whole


class Found(NamedTuple):
    """Poses of pairs on the device of the matches, as the first three rows of their transforms."""

    rows: Tensor  # [B, K, 3, 4] float64, most support first
    support: Tensor  # [B, K] float64, negative: no pose
    agree: Tensor  # [B, K, M] bool
    tried: Tensor  # [B] int64, hypotheses
    finite: Tensor  # [B] bool, whether all coordinates are


def on_host(found: Found, counts: Sequence[int]) -> list[Solution]:
    """Wait for poses, once, and make a solution of those of every pair."""
    if found.support.is_cuda:
        return solutions_of(packed(found).cpu(), counts, found.agree.shape[2])
    return _solutions(_numbers(found), found.agree, counts)


def packed(found: Found) -> Tensor:
    """All that `solutions_of` reads of poses as bytes [B, 104 K + 16 + K M], for one copy."""
    numbers, agree = _numbers(found), found.agree.flatten(1)
    return torch.cat([numbers.view(torch.uint8), agree.view(torch.uint8)], 1)


def solutions_of(parcel: Tensor, counts: Sequence[int], room: int) -> list[Solution]:
    """Solutions of what `packed` gives, on the CPU."""
    most = (parcel.shape[1] - 16) // (104 + room)  # poses K of a pair
    width = 8 * (13 * most + 2)
    # a copy: the only row of a batch of one is contiguous as it is, and keeps its odd stride
    numbers = parcel[:, :width].clone(memory_format=torch.contiguous_format).view(torch.float64)
    agree = parcel[:, width:].contiguous().view(torch.bool).unflatten(1, (most, -1))
    check_finite(numbers[:, -1] > 0)
    return _solutions(numbers, agree, counts)


def _numbers(found: Found) -> Tensor:
    """[B, 13 K + 2] float64: rows of transforms, support, hypotheses, whether all are finite."""
    ends = torch.stack([found.tried, found.finite.long()], 1)
    return torch.cat([found.rows.flatten(1), found.support, ends.double()], 1)


def _solutions(numbers: Tensor, agree: Tensor, counts: Sequence[int]) -> list[Solution]:
    pairs = zip(numbers, agree, counts, strict=True)
    return [_solution(ours, inliers, count) for ours, inliers, count in pairs]


def _solution(numbers: Tensor, agree: Tensor, count: int) -> Solution:
    most = len(agree)
    support, tried = numbers[12 * most : 13 * most], int(numbers[-2])
    kept = (support > 0).nonzero().squeeze(1)
    if not len(kept):
        return Solution(None, torch.zeros(count, dtype=torch.bool), tried)
    transforms = whole(numbers[: 12 * most].view(most, 3, 4)[kept])
    inliers = agree[:, :count][kept]
    return Solution(
        transforms[0], inliers[0], tried, Candidates(transforms, inliers, support[kept])
    )


def check_finite(finite: Tensor) -> None:
    """Refuse pairs whose coordinates are not all finite."""
    if not bool(finite.all()):
        raise ValueError("matched points hold NaN or infinite coordinates")
