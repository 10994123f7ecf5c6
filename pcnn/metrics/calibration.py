"""How well probabilities say how often a network is right, and the temperature that mends them."""

from __future__ import annotations

import torch
from torch import Tensor

#: Range and precision of the logarithm of a temperature.
_LOG_RANGE, _STEPS = 3.0, 60
_GOLDEN = (5**0.5 - 1) / 2


def confidence_error(confidence: Tensor, right: Tensor, bins: int = 10) -> float:
    """Expected calibration error of confidences [P] against what was right [P].

    Mean distance, over bins of equal width, of the confidence from the share that is right.

    Source: Guo et al. 2017, "On calibration of modern neural networks", eq. 3.
    """
    place = (confidence * bins).long().clamp(0, bins - 1)
    gaps = (confidence.double() - right.double()).cpu()
    sums = torch.zeros(bins, dtype=torch.float64).index_add_(0, place.cpu(), gaps)
    return float(sums.abs().sum()) / max(len(gaps), 1)


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """How far confidence and accuracy of points lie apart, by the probability of their class."""
    if not len(labels):
        return 0.0
    confidence, classes = probabilities.double().max(1)
    return confidence_error(confidence, classes == labels, bins)


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
