"""A weighted mean that is 0, not NaN, before anything was counted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


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
        """Add one value.

        Args:
            value: scalar.
            weight: how much it counts, a scalar.
        """
        self.total += value.detach().double() * weight
        self.weight += weight

    def compute(self) -> Tensor:
        """The mean, float32 scalar."""
        return (self.total / self.weight.clamp(min=torch.finfo(torch.float64).tiny)).float()
