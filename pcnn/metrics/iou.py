"""Figures of a confusion matrix: IoU and accuracy of every class, and the means people quote.

Every function takes the counts of `pcnn.metrics.confusion.ConfusionMatrix`: [C, C + 1] int64, rows
truth, columns prediction, the last column for predictions of no class; a square [C, C] matrix means
that there were none. With ``tp = counts[c, c]``, ``fn = sum_j counts[c, j] - tp`` (predictions of
no class included) and ``fp = sum_i counts[i, c] - tp``.
Figures are float64: of every class [C], or one number.

Source: `auxiliary/np_ioueval.py` and `evaluate_semantics.py` of the SemanticKITTI API, whose rule
this restates: points without a true label are dropped, predictions of "unlabelled" are false
negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-15  # of the official evaluator: a class that is absent everywhere gets 0, not 0 / 0


def _stats(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return true positives, false positives and false negatives, each [C] float64."""
    if counts.ndim != 2 or counts.shape[1] not in (counts.shape[0], counts.shape[0] + 1):
        raise ValueError(
            "expected confusion counts of shape [C, C] or [C, C + 1] (rows truth, columns "
            f"prediction), got {tuple(counts.shape)}"
        )
    c = counts.shape[0]
    exact = counts.double()  # counts stay far below 2^53, so every sum is exact
    tp = exact.diagonal()
    fp = exact[:, :c].sum(0) - tp
    fn = exact.sum(1) - tp
    return tp, fp, fn


def iou(counts: Tensor) -> Tensor:
    """Intersection over union of every class, tp / (tp + fp + fn + eps).

    Args:
        counts: [C, C + 1] or [C, C] integer confusion counts.

    Returns:
        [C] float64; 0 for a class that occurs neither in the truth nor in the predictions.
    """
    tp, fp, fn = _stats(counts)
    return tp / (tp + fp + fn + EPS)


def present(counts: Tensor) -> Tensor:
    """Return which classes occur in the truth, [C] bool."""
    tp, _, fn = _stats(counts)
    return (tp + fn) > 0


def miou_official(counts: Tensor) -> Tensor:
    """Mean IoU over all C classes, absent ones counting 0: the official SemanticKITTI figure."""
    return iou(counts).mean()


def miou_present(counts: Tensor) -> Tensor:
    """Mean IoU over the classes that occur in the truth; 0 when there is none."""
    here = present(counts)
    # a weighted sum instead of a selection: the host does not have to know how many there are
    return (iou(counts) * here).sum() / here.sum().clamp(min=1)


def accuracy(counts: Tensor) -> Tensor:
    """Share of right points, sum tp / (sum tp + sum fp + eps), as the official evaluator has it.

    Labelled points predicted as "no class" are in no denominator; where every point gets a class
    this is the plain share of labelled points that are right.
    """
    tp, fp, _ = _stats(counts)
    return tp.sum() / (tp.sum() + fp.sum() + EPS)


def mean_class_accuracy(counts: Tensor) -> Tensor:
    """Mean accuracy of classes (mAcc): mean of tp / (tp + fn) over the classes in the truth.

    A class that does not occur in the truth is left out; some evaluators, such as Pointcept's,
    count it as 0. Both rules give the same where every class occurs.
    """
    samples = counts.sum(1)
    shares = counts.diagonal().double() / samples.clamp(min=1)
    return shares.sum() / (samples > 0).sum().clamp(min=1)


def best_constant(counts: Tensor) -> Tensor:
    """Present-class mIoU of the best prediction that gives every point the same class.

    Predicting class c everywhere has IoU n_c / N for c and 0 for the others, so the best constant
    reaches max_c n_c / (N * number of classes present). A network must beat it clearly to show that
    it has learnt anything.
    """
    tp, _, fn = _stats(counts)
    points = tp + fn  # [C] labelled points of every class
    return points.max() / (points.sum() * (points > 0).sum()).clamp(min=1)


def summary(counts: Tensor, prefix: str = "") -> dict[str, Tensor]:
    """Return the scalar figures of a confusion matrix under the names that are logged.

    Args:
        counts: [C, C + 1] or [C, C] integer confusion counts.
        prefix: put before every name, e.g. ``"val/"``.

    Returns:
        ``miou`` (official), ``miou_present``, ``accuracy`` and ``best_constant``, scalar float32
        (what loggers and MPS devices take).
    """
    figures = {
        "miou": miou_official(counts),
        "miou_present": miou_present(counts),
        "accuracy": accuracy(counts),
        "best_constant": best_constant(counts),
    }
    return {prefix + name: value.to(torch.float32) for name, value in figures.items()}
