"""How well probabilities say how often a network is right, and the temperature that mends them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: Range and precision of the logarithm of a temperature.
_LOG_RANGE, _STEPS = 3.0, 60
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class Reliability:
    """How far confidence is from the share of right poses."""

    confidence: tuple[float, ...]  # mean of every bin that holds a pair
    right: tuple[float, ...]  # share of right poses there
    pairs: tuple[int, ...]  # number of pairs there
    error: float  # expected calibration error: mean distance of the two over pairs


def reliability(confidence: Tensor, right: Tensor, bins: int = 10) -> Reliability:
    """Compare confidences [P] with what was right [P], in bins of equal width.

    Source: Guo et al. 2017, "On calibration of modern neural networks" (ECE).
    """
    place = (confidence * bins).long().clamp(0, bins - 1)
    rows = [place == one for one in range(bins)]
    rows = [row for row in rows if bool(row.any())]
    said = tuple(float(confidence[row].mean()) for row in rows)
    was = tuple(float(right[row].double().mean()) for row in rows)
    pairs = tuple(int(row.sum()) for row in rows)
    gaps = (abs(one - other) * n for one, other, n in zip(said, was, pairs, strict=True))
    return Reliability(said, was, pairs, math.fsum(gaps) / max(sum(pairs), 1))


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Expected calibration error: how far confidence and accuracy lie apart, weighted by points.

    Points are sorted into bins of equal width by the probability of their class.

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, eq. 3.
    """
    if not len(labels):
        return 0.0
    confidence, classes = probabilities.double().max(1)
    return reliability(confidence, classes == labels, bins).error


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The number to divide logits by at which the labels are most likely.

    Source: Guo et al., 2017, section 4.2.
    """
    if not len(labels):
        return 1.0
    wide = logits.double()

    def loss(log_temperature: float) -> float:
        scaled = wide * torch.tensor(-log_temperature, dtype=torch.float64).exp()
        return float(torch.nn.functional.cross_entropy(scaled, labels))

    # convex in 1 / T, so it has one minimum in log T: golden-section search
    low, high = -_LOG_RANGE, _LOG_RANGE
    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = loss(a), loss(b)
    for _ in range(_STEPS):
        if high - low < 1e-4:
            break
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = loss(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = loss(b)
    return float(torch.tensor((low + high) / 2).exp())
