"""Shares of right answers, class by class, from a confusion matrix of whole clouds.

Counts are those of `pcnn.metrics.ConfusionMatrix`: [C, C + 1] int64, rows truth.
"""

from __future__ import annotations

import torch
from torch import Tensor


def class_accuracy(counts: Tensor) -> Tensor:
    """Share of every class's samples that are right, tp / (tp + fn), [C] float64; 0 without any."""
    return counts.diagonal().double() / counts.sum(1).clamp(min=1)


def mean_class_accuracy(counts: Tensor) -> Tensor:
    """Mean accuracy of classes (mAcc): mean of `class_accuracy` over the classes in the truth.

    A class that does not occur in the truth is left out; some evaluators, such as Pointcept's,
    count it as 0. Both rules give the same where every class occurs.

    Args:
        counts: [C, C + 1] or [C, C] integer confusion counts.

    Returns:
        Scalar float64; 0 without any labelled sample.
    """
    here = counts.sum(1) > 0
    return (class_accuracy(counts) * here).sum() / here.sum().clamp(min=1)


def best_constant_accuracy(counts: Tensor) -> Tensor:
    """Accuracy of always answering the commonest class, max_c n_c / N; 0 without any sample."""
    samples = counts.sum(1)
    return samples.max().to(torch.float64) / samples.sum().clamp(min=1)
