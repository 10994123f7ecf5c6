"""Confusion matrix of a segmentation, counted without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from pcnn.metrics.confusion_counts import check_ignored, check_in_range, counted


class ConfusionMatrix(Metric):
    """Count the points of true class r that were predicted as class c.

    ``counts[r, c] = |{p : target[p] = r, pred[p] = c}|`` over all labelled points. Rows are the
    truth, columns the prediction. The last column holds labelled points that were predicted as "no
    class" (`ignore_index`). The official SemanticKITTI evaluator counts them as missed: they are
    false negatives of their true class and false positives of none. Points whose *truth* is
    `ignore_index` are dropped.

    State is int64, so counts are exact and the sum over ranks does not depend on their order. An
    update launches device work only: nothing is read back, so it may sit in a training step. A
    label outside ``0..C-1`` that is not `ignore_index` is counted apart and raised by `compute`.
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    counts: Tensor  # [C, C + 1] int64
    invalid: Tensor  # [2] int64: labels outside the range in target, in pred

    def __init__(self, num_classes: int, ignore_index: int = 255, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_ignored(num_classes, ignore_index)
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        zeros = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)
        self.add_state("counts", zeros, dist_reduce_fx="sum")
        self.add_state("invalid", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Add the points of one batch; arguments and errors as of `counted`."""
        self.add(*self.counted(pred, target))

    def add(self, counts: Tensor, invalid: Tensor) -> None:
        """Add what `counted` returned."""
        self.counts += counts
        self.invalid += invalid

    def counted(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Count the points of one batch (`pcnn.metrics.confusion_counts.counted`).

        The state stays as it is.
        """
        return counted(pred, target, self.num_classes, self.ignore_index)

    def compute(self) -> Tensor:
        """Return the counts, summed over ranks."""
        check_in_range(self.invalid, self.num_classes, self.ignore_index)
        return self.counts.clone()
