"""Weighted cross entropy, safe where nothing is labelled; weights of classes and of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.config.values import check_fields
from pcnn.ranges import NonNegative, Share


class CrossEntropy(nn.Module):
    """Class-weighted mean cross entropy over the labelled rows.

    ``L = sum_n w[y_n] * -log softmax(x_n)[y_n] / sum_n w[y_n]`` over rows with
    ``y_n != ignore_index``: torch's own weighted mean. Only a batch without any labelled row
    differs: loss and gradient are 0, not NaN. Half-precision logits are summed in float32.

    Args:
        weight: C class weights, or None for 1 each; see `inverse_log_frequency`.
        ignore_index: label of rows that do not count.
        label_smoothing: share of every row's target that is spread evenly over all classes, as in
            `torch.nn.CrossEntropyLoss`.
    """

    weight: Tensor | None  # [C] float32

    def __init__(
        self,
        weight: Sequence[NonNegative] | Tensor | Literal["counted"] | None = None,
        ignore_index: int = 255,
        label_smoothing: Share = 0.0,
    ) -> None:
        super().__init__()
        if isinstance(weight, str):
            raise ValueError(f"weight={weight!r} is counted by train.py alone; give numbers")
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        check_fields(self)
        values = None if weight is None else torch.as_tensor(weight, dtype=torch.float32).clone()
        # not persistent: a checkpoint carries its configuration, and loads without this loss too
        self.register_buffer("weight", values, persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits [N, C] against class ids [N] int64, or `ignore_index`; N may be 0."""
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        weight = None if self.weight is None else self.weight.to(logits.dtype)
        # summed apart: torch's own sum runs in one block of a GPU, forward and backward
        each = F.cross_entropy(
            logits,
            target,
            weight=weight,
            ignore_index=self.ignore_index,
            reduction="none",
            label_smoothing=self.label_smoothing,
        )
        total = each.sum()
        labelled = target != self.ignore_index
        if weight is None:
            return total / labelled.sum().clamp(min=1)
        norm = (weight[torch.where(labelled, target, 0)] * labelled).sum()
        return total / torch.where(norm > 0, norm, 1)


def inverse_log_frequency(counts: Sequence[int] | Tensor, offset: float = 1.02) -> Tensor:
    """Weight every class by 1 / ln(offset + f), f its share of the labelled points.

    With the default offset the weights lie between 1.42 (a class that is everything) and 50.5 (one
    that was never seen). They are not normalised: `pcnn.losses.CrossEntropy` divides by their sum.

    Args:
        counts: [C] labelled points of every class, non-negative.
        offset: above 1; the closer to 1, the larger the weights of rare classes.

    Returns:
        [C] float32.

    Source: Paszke et al., "ENet", 2016, section 5.2 (c = 1.02).
    """
    if not offset > 1:
        raise ValueError(f"offset={offset}: above 1, an unseen class gets 1 / ln(offset)")
    points = torch.as_tensor(counts, dtype=torch.float64)
    if points.ndim != 1 or bool((points < 0).any()) or not 0 < float(points.sum()) < torch.inf:
        raise ValueError(f"counts={points.tolist()}: finite, none negative, at least one point")
    return (1 / torch.log(offset + points / points.sum())).float()


class WeightedSum(nn.Module):
    """``L = sum_k weight_k * loss_k(logits, target)``.

    Args:
        losses: modules with the signature ``loss(logits [N, C], target [N]) -> scalar``.
        weights: one factor a loss; None means 1 each.
    """

    def __init__(
        self, losses: Sequence[nn.Module], weights: Sequence[NonNegative] | None = None
    ) -> None:
        super().__init__()
        factors = [1.0] * len(losses) if weights is None else [float(w) for w in weights]
        if not losses or len(factors) != len(losses):
            raise ValueError(f"one weight a loss: {len(losses)} losses and {len(factors)} weights")
        self.losses = nn.ModuleList(losses)
        self.weights = factors

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the weighted sum for logits [N, C] and class ids [N], a scalar."""
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()  # once for all
        each = (loss(logits, target) for loss in self.losses)
        terms = zip(self.weights, each, strict=True)
        parts = [one if weight == 1 else weight * one for weight, one in terms]
        return sum(parts[1:], parts[0])
