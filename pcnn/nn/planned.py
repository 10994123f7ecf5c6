"""Networks that plan their geometry before the first layer runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor


class PlannedModule(nn.Module):
    """A network that builds all levels and kernel maps of its input at once.

    The first call finds out, by a dry run, what the layers will ask for; every call then builds
    it, unless it is there already (by `pcnn.plan`, or for a network around this one). Layers find
    everything in place, so between the plan and the output nothing waits for the device. A plain
    `torch.nn.Module` works too: its layers ask for one map after another.

    Attributes:
        plans_input: whether calls plan; switch it off to plan by hand.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plans_input = True
        self._planner: Planner | None = None
        self.register_forward_pre_hook(_plan_input)

    @property
    def planner(self) -> Planner:
        """The planner of this network, made at the first request."""
        if self._planner is None or not self._planner.belongs_to(self):  # a copy has its own
            self._planner = Planner(self)
        return self._planner


def _plan_input(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    if torch.compiler.is_compiling():
        torch.compiler.disable(_plan_input)(module, inputs)
        return
    assert isinstance(module, PlannedModule)
    if module.plans_input and inputs and isinstance(inputs[0], SparseTensor):
        module.planner(inputs[0].geometry)
