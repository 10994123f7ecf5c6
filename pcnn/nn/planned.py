"""Networks that plan their geometry before the first layer runs, and capture CUDA graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from pcnn.graphs import INSIDE, NOTHING
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

if TYPE_CHECKING:
    from pcnn.graphs.own_steps import OwnSteps
    from pcnn.graphs.runner import Runner

#: Forward passes that may wait for their backward, each with memory of its own.
PASSES = 2


class PlannedModule(nn.Module):
    """A network that builds all levels and kernel maps of its input at once.

    The first call finds out, by a dry run, what the layers will ask for; every call then builds
    it, unless it is there already (by `pcnn.plan`, or for a network around this one). Layers find
    everything in place, so between the plan and the output nothing waits for the device. A plain
    `torch.nn.Module` works too: its layers ask for one map after another.

    On a CUDA device calls become CUDA graphs by themselves once inputs of a size have come three
    times: in evaluation without gradients, and in training, where autograd sees one node. Outputs
    and gradients are those of the eager network, on memory of their own; running statistics are
    those of the true rows. Changes of weights, modules, hooks and modes are seen. Where graphs do
    not serve, as with hooks or where a layer waits for the device, the network runs eagerly, and
    `graphs_reason` says why. The graphs of eight sizes are kept in either mode, each with memory
    for its input and output; all share that of temporary tensors.

    Attributes:
        plans_input: whether calls plan; switch it off to plan by hand.
        graphs: whether calls become graphs; switch it off to save their memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self.plans_input = True
        self.graphs = True
        self._planner: Planner | None = None
        self._graphs: Runner | None = None
        self._steps: tuple[OwnSteps, ...] = ()  # for several passes before one backward

    @property
    def planner(self) -> Planner:
        """The planner of this network, made at the first request."""
        if self._planner is None or not self._planner.belongs_to(self):  # a copy has its own
            self._planner = Planner(self)
        return self._planner

    @property
    def graphs_reason(self) -> str | None:
        """Why the last calls were no graphs although sizes repeat; ``None``: nothing failed."""
        if self._graphs is None:
            return None
        return self._steps[0].reason if self.training else self._graphs.reason

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The network's output; see `torch.nn.Module`."""
        if torch.compiler.is_compiling():
            torch.compiler.disable(self._plan)(args)
            return super().__call__(*args, **kwargs)
        if INSIDE.get():
            self._plan(args)
            return super().__call__(*args, **kwargs)
        token = INSIDE.set(True)
        try:
            if self.graphs and self.plans_input and len(args) == 1 and not kwargs:
                output = self._from_graph(args[0])
                if output is not NOTHING:
                    return output
            self._plan(args)
            return super().__call__(*args, **kwargs)
        finally:
            INSIDE.reset(token)

    def start_graphs(self, **settings: Any) -> None:
        """Begin without graphs; settings: how steps are captured (`OwnSteps`)."""
        from pcnn.graphs.own_steps import OwnSteps
        from pcnn.graphs.runner import Runner

        self._graphs = Runner(self)
        self._steps = tuple(OwnSteps(self, **settings) for _ in range(PASSES))

    def release_graphs(self) -> None:
        """Give up all graphs and their memory; new ones follow."""
        self._graphs, self._steps = None, ()

    def train(self, mode: bool = True) -> PlannedModule:
        """Switch between training, in which graphs give their memory back, and evaluation."""
        if mode and self._graphs is not None and self._graphs.belongs_to(self):
            self._graphs.release()
        super().train(mode)
        return self

    def _from_graph(self, x: Any) -> Any:
        follows = torch.is_grad_enabled()
        if follows != self.training or not isinstance(x, SparseTensor):
            return NOTHING
        if self._graphs is None and not x.features.is_cuda:
            return NOTHING
        if self._graphs is None or not self._graphs.belongs_to(self):
            self.start_graphs()
        assert self._graphs is not None
        found = (one for one in (self._steps if follows else (self._graphs,)) if one.serves(x))
        own = next(found, None)
        if own is None:
            return NOTHING
        with torch.cuda.device_of(x.features):
            return own(x, self, self.planner, super().__call__)

    def _plan(self, args: tuple[Any, ...]) -> None:
        if self.plans_input and args and isinstance(args[0], SparseTensor):
            self.planner(args[0].geometry)
