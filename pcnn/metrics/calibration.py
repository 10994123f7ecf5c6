"""How well probabilities say how often a network is right, and the temperature that mends them."""

from __future__ import annotations

import torch
from torch import Tensor

#: Range and precision of the logarithm of a temperature.
_LOG_RANGE, _STEPS = 3.0, 60
_GOLDEN = (5**0.5 - 1) / 2


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Expected calibration error: how far confidence and accuracy lie apart, weighted by points.

    Points are sorted into bins of equal width by the probability of their class.

    Args:
        probabilities: [N, C] float, rows that sum to 1.
        labels: [N] int64 in 0..C-1.
        bins: their number.

    Returns:
        In 0..1; 0 of no points.

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, eq. 3.
    """
    if not len(labels):
        return 0.0
    confidence, classes = probabilities.double().max(1)
    place = (confidence * bins).long().clamp(0, bins - 1)
    right = (classes == labels).double()
    apart = torch.zeros(bins, dtype=torch.float64, device=labels.device)
    apart.index_add_(0, place, confidence - right)
    return float(apart.abs().sum() / len(labels))


def fitted_temperature(logits: Tensor, labels: Tensor) -> float:
    """The number to divide logits by at which the labels are most likely.

    Args:
        logits: [N, C] float, of clouds that the network was not trained on.
        labels: [N] int64 in 0..C-1.

    Returns:
        Within 0.05..20; 1 of no points.

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
