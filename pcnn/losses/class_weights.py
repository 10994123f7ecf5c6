"""Class weights from class counts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def inverse_log_frequency(counts: Sequence[int] | Tensor, offset: float = 1.02) -> Tensor:
    """Weight every class by 1 / ln(offset + f), f its share of the labelled points.

    Rare classes weigh more, but boundedly: with the default offset the weights lie between 1.42
    (a class that is everything) and 50.5 (one that was never seen), where plain inverse frequency
    has no bound. Weights are not normalised: `pcnn.losses.CrossEntropy` divides by their sum.

    Args:
        counts: [C] labelled points of every class, non-negative.
        offset: above 1; the closer to 1, the larger the weights of rare classes.

    Returns:
        [C] float32.

    Raises:
        ValueError: a count is negative, no point was counted, or `offset` is not above 1.

    Source: Paszke et al., "ENet", 2016, section 5.2 (c = 1.02).
    """
    if offset <= 1:
        raise ValueError(
            f"offset must be above 1 (an unseen class gets 1 / ln(offset)), got {offset}"
        )
    points = torch.as_tensor(counts, dtype=torch.float64)
    if points.ndim != 1 or bool((points < 0).any()) or float(points.sum()) <= 0:
        raise ValueError(
            "counts must hold one non-negative number a class and at least one point, "
            f"got {points.tolist()}"
        )
    return (1 / torch.log(offset + points / points.sum())).float()
