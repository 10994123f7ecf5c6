"""A weighted sum of losses."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from pcnn.ranges import NonNegative


class WeightedSum(nn.Module):
    """``L = sum_k weight_k * loss_k(logits, target)``.

    Args:
        losses: modules with the signature ``loss(logits [N, C], target [N]) -> scalar``.
        weights: one factor a loss; None means 1 each.

    Raises:
        ValueError: no loss was given, or the numbers of losses and weights differ.
    """

    def __init__(
        self, losses: Sequence[nn.Module], weights: Sequence[NonNegative] | None = None
    ) -> None:
        super().__init__()
        factors = [1.0] * len(losses) if weights is None else [float(w) for w in weights]
        if not losses or len(factors) != len(losses):
            raise ValueError(
                f"WeightedSum needs one weight a loss, got {len(losses)} losses and "
                f"{len(factors)} weights"
            )
        self.losses = nn.ModuleList(losses)
        self.weights = factors

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the weighted sum for logits [N, C] and class ids [N], a scalar."""
        total = logits.new_zeros(())
        for weight, loss in zip(self.weights, self.losses, strict=True):
            total = total + weight * loss(logits, target)
        return total
