"""Which parameters decay."""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(
    module: nn.Module, decay_norms_and_biases: bool = True
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser.

    Args:
        module: its parameters that require gradients are grouped, in their own order.
        decay_norms_and_biases: one group for all; otherwise parameters with fewer than two
            dimensions (biases, scales and shifts of norms) go to a second group without decay.

    Returns:
        Groups as torch optimisers take them; the last has `weight_decay` 0 when there are two.
    """
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if decay_norms_and_biases:
        return [{"params": parameters}]
    decayed = [parameter for parameter in parameters if parameter.ndim >= 2]
    free = [parameter for parameter in parameters if parameter.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": decayed},
        {"params": free, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
