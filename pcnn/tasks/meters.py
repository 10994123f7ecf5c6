"""What the evaluation of a task adds up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from pcnn.metrics.confusion import ConfusionMatrix


class Mean(Metric):
    """sum(weight * value) / sum(weight), exact over ranks; 0 without values.

    Sums are float64, so that the mean of a long pass does not depend on its order.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        zero = torch.zeros((), dtype=torch.float64)
        self.add_state("total", zero, dist_reduce_fx="sum")
        self.add_state("weight", zero.clone(), dist_reduce_fx="sum")

    def update(self, value: Tensor, weight: float | Tensor = 1.0) -> None:
        self.total += value.detach().double() * weight
        self.weight += weight

    def compute(self) -> Tensor:
        return (self.total / self.weight.clamp(min=torch.finfo(torch.float64).tiny)).float()


class Meters(nn.Module):
    """Sums over an evaluation."""

    def __init__(self, num_classes: int, ignore_index: int) -> None:
        super().__init__()
        self.confusion = ConfusionMatrix(num_classes, ignore_index)
        self.voted = ConfusionMatrix(num_classes, ignore_index)  # of test-time augmentation
        self.loss = Mean()
        self.broken = Mean()  # share of rows whose logits are NaN
