"""Counts of a confusion matrix, as plain functions of two label tensors."""

from __future__ import annotations

import torch
from torch import Tensor


def check_ignored(num_classes: int, ignore_index: int) -> None:
    """Refuse an `ignore_index` that is a class."""
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    if 0 <= ignore_index < num_classes:
        raise ValueError(
            f"ignore_index {ignore_index} is one of the {num_classes} class ids; "
            "choose an id outside 0..num_classes-1, e.g. 255"
        )


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


def check_in_range(invalid: Tensor, num_classes: int, ignore_index: int) -> None:
    """Refuse labels that are no class."""
    bad_target, bad_pred = invalid.tolist()
    if bad_target or bad_pred:
        raise ValueError(
            f"{bad_target} true and {bad_pred} predicted labels are neither a class id "
            f"0..{num_classes - 1} nor ignore_index {ignore_index}; "
            "map raw labels to train ids first"
        )


def confusion_counts(
    pred: Tensor, target: Tensor, num_classes: int, ignore_index: int = 255
) -> Tensor:
    """The confusion matrix of one pair of label tensors; arguments as of `counted`."""
    check_ignored(num_classes, ignore_index)
    counts, invalid = counted(pred, target, num_classes, ignore_index)
    check_in_range(invalid, num_classes, ignore_index)
    return counts
