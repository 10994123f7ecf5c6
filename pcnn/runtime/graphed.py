"""Networks in inference as CUDA graphs: what those on voxels and on native points share."""

from __future__ import annotations

import copy
import threading
import warnings

import torch
from torch import nn

from pcnn.nn.snapshot import NetworkSnapshot
from pcnn.ops import Planner
from pcnn.runtime.buckets import Edges

#: Norms keep their parameters in float32 where a network is run in half precision.
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


class Graphed:
    """A network, the copy of it that graphs read, and why it runs eagerly if it does.

    Calls may come from several threads and streams; they run one after another. A change of the
    network's weights is seen at the next call, which captures again.
    """

    def __init__(
        self, model: nn.Module, dtype: torch.dtype | None, edges: Edges | None, most: int
    ) -> None:
        if model.training:
            raise ValueError("graph() runs inference, but the network trains: call model.eval()")
        self.model, self.dtype = model, dtype
        self.edges, self.most = edges or Edges(), most
        self.device = next(model.parameters()).device
        self.reason: str | None = None
        if self.device.type != "cuda":
            self.reason = f"CUDA graphs need a CUDA device, but the network is on {self.device}"
        self._lock = threading.Lock()

    def _adopt(self) -> None:
        """Take the network as it is now: what was captured before belongs to other weights."""
        self._kept = NetworkSnapshot(self.model)
        self._net = own_network(self.model, self.dtype)
        planner = getattr(self._net, "planner", None)
        self._planner: Planner = planner if isinstance(planner, Planner) else Planner(self._net)

    def _is_current(self) -> bool:
        """True if the network is as it was adopted."""
        return self._kept.holds()

    def _check_mode(self) -> None:
        if self.model.training:
            raise ValueError("the network has been switched to training; call model.eval()")

    def _run_eagerly_as(self, reason: str) -> None:
        self.reason = reason
        warnings.warn(
            f"{type(self.model).__name__} runs without CUDA graphs: {reason}", stacklevel=5
        )


def own_network(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A copy of a network, on the same weights or on copies in a dtype; norms keep theirs.

    Layers keep tensors computed from weights (`FoldedNorm`) and drop them when the network is
    switched to training or back. Graphs read them at every replay, so they belong to a copy that
    nothing else switches.
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
