"""Weighted cross entropy that is safe where nothing is labelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pcnn.ranges import NonNegative, Share


class CrossEntropy(nn.Module):
    """Class-weighted mean cross entropy over the labelled rows.

    ``L = sum_n w[y_n] * -log softmax(x_n)[y_n] / sum_n w[y_n]`` over rows with
    ``y_n != ignore_index``: torch's own weighted mean. Only a batch without any labelled row
    differs: loss and gradient are 0, not NaN, which would destroy the weights. Nothing is read back
    from the device. Half-precision logits are summed in float32.

    Args:
        weight: C class weights, or None for 1 each; see `pcnn.losses.class_weights`. ``counted`` in
            a configuration stands for weights that train.py counts from the training set.
        ignore_index: label of rows that do not count.
        label_smoothing: share of every row's target that is spread evenly over all classes, as in
            `torch.nn.CrossEntropyLoss`.

    Raises:
        ValueError: a share outside 0..1, or weights that have not been counted.
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
            raise ValueError(
                f"weight={weight!r} is for configurations, where train.py counts the classes; "
                "here give the weights (pcnn.losses.inverse_log_frequency)"
            )
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing must be a share in 0..1, got {label_smoothing}")
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        values = None if weight is None else torch.as_tensor(weight, dtype=torch.float32).clone()
        # not persistent: a checkpoint carries its configuration, and loads without this loss too
        self.register_buffer("weight", values, persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss.

        Args:
            logits: [N, C] floating point; N may be 0.
            target: [N] int64 class ids or `ignore_index`.

        Returns:
            Scalar; float32, or float64 for float64 logits.
        """
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
            norm = labelled.sum().to(logits.dtype)
        else:
            norm = (weight[torch.where(labelled, target, 0)] * labelled).sum()
        return total / torch.where(norm > 0, norm, 1)
