"""The copy of a network that graphs read."""

from __future__ import annotations

import copy

import torch
from torch import nn

#: Norms keep their parameters in float32 where a network is run in half precision.
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


def own_network(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A copy of a network, on the same weights or on copies in a dtype, but for its norms.

    Layers keep tensors computed from weights (`FoldedNorm`) and drop them when the network is
    switched to training or back. Graphs read them at every replay, so they belong to a copy that
    nothing else switches.

    Args:
        model: the network.
        dtype: of the copies; ``None``: the weights themselves.
    """
    if dtype is None:
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        return copy.deepcopy(model, shared)
    with torch.inference_mode(False):  # what is computed from tensors of that mode is not kept
        own = copy.deepcopy(model)
        for module in own.modules():
            if not isinstance(module, _NORMS):
                module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    return own
