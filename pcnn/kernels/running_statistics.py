"""The statistics that a batch norm keeps from batch to batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RunningStatistics(NamedTuple):
    """Statistics over batches, updated in place as `torch.nn.BatchNorm1d` does."""

    mean: Tensor  # [C]
    variance: Tensor  # [C], unbiased
    batches: Tensor | None  # int64 number of batches, or None
    momentum: float | None  # share of the batch
