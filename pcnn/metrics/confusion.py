"""Confusion matrix of a segmentation, counted without waiting for the device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


def counted(
    pred: Tensor, target: Tensor, num_classes: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Count the points of true class r that were predicted as class c; waits for no device."""
    if pred.ndim != 1 or pred.shape != target.shape:
        raise ValueError(
            "pred and target must be one-dimensional and of equal length, "
            f"got {tuple(pred.shape)} and {tuple(target.shape)}"
        )
    for name, labels in (("pred", pred), ("target", target)):
        if labels.dtype.is_floating_point or labels.dtype.is_complex:
            raise TypeError(
                f"{name} must hold integer class ids, got {labels.dtype}; "
                "take the argmax of logits first"
            )
    c = num_classes
    pred, target = pred.long(), target.long()
    pred_in = (pred >= 0) & (pred < c)
    target_in = (target >= 0) & (target < c)
    pred_bad = ~pred_in & (pred != ignore_index)
    target_bad = ~target_in & (target != ignore_index)
    # one extra cell takes the points that do not count, so that no mask is needed: selecting
    # by a mask (and torch.bincount) would make the host wait for the device
    cell = target * (c + 1) + torch.where(pred_in, pred, c)
    cell = torch.where(target_in & ~pred_bad, cell, c * (c + 1))
    flat = torch.zeros(c * (c + 1) + 1, dtype=torch.int64, device=pred.device)
    flat.scatter_add_(0, cell, torch.ones_like(cell))
    invalid = torch.stack((target_bad.sum(), (pred_bad & target_in).sum()))
    return flat[:-1].view(c, c + 1), invalid


def class_counts(pred: Tensor, target: Tensor, num_classes: int) -> Tensor:
    """`counts` of points whose predictions are all classes; whose truth is none are left out.

    A third of the launches, for training steps.
    """
    c = num_classes
    rows = target.clamp(-1, c)  # what is no class is counted before or behind the matrix
    cell = torch.add(pred, rows, alpha=c + 1).add_(c + 1)
    flat = torch.zeros((c + 2) * (c + 1), dtype=torch.int64, device=cell.device)
    flat.scatter_add_(0, cell, torch.ones_like(cell))
    return flat.view(c + 2, c + 1)[1:-1]


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
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if 0 <= ignore_index < num_classes:
            raise ValueError(
                f"ignore_index {ignore_index} is one of the {num_classes} class ids; "
                "choose an id outside 0..num_classes-1, e.g. 255"
            )
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        zeros = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)
        self.add_state("counts", zeros, dist_reduce_fx="sum")
        self.add_state("invalid", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, pred: Tensor, target: Tensor) -> None:
        """Add the points of one batch; arguments and errors as of `counted`."""
        counts, invalid = counted(pred, target, self.num_classes, self.ignore_index)
        self.counts += counts
        self.invalid += invalid

    def compute(self) -> Tensor:
        """Return the counts, summed over ranks."""
        bad_target, bad_pred = self.invalid.tolist()
        if bad_target or bad_pred:
            raise ValueError(
                f"{bad_target} true and {bad_pred} predicted labels are neither a class id "
                f"0..{self.num_classes - 1} nor ignore_index {self.ignore_index}; "
                "map raw labels to train ids first"
            )
        return self.counts.clone()
