"""The statistics that a batch norm keeps from batch to batch."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RunningStatistics(NamedTuple):
    """Statistics over batches, updated in place as `torch.nn.BatchNorm1d` does.

    Args:
        mean: ``[C]``.
        variance: ``[C]``, unbiased.
        batches: int64 number of batches, or ``None``.
        momentum: share of the batch; ``None`` averages over all batches, if they are counted.
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor | None
    momentum: float | None
