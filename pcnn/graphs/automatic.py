"""Graphs that a network captures by itself, once inputs of a size have come several times."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from pcnn.graphs import NOTHING
from pcnn.graphs.capture import Capture
from pcnn.graphs.runner import Run, Runner
from pcnn.graphs.sizes import Edges
from pcnn.graphs.sources import Tensors
from pcnn.kernels.recorded import RECORD
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Sizes that are kept, and the calls of a size until it is captured.
MOST, AFTER = 8, 3
#: Calls without another attempt after one that failed; twice as many after the next.
PAUSE = 64


class Owned:
    """Graphs of one network, which holds them; no reference back, or neither would be freed."""

    def __init__(self, model: nn.Module, capture: Capture | None = None) -> None:
        self._model, self._given = weakref.ref(model), capture

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a network has graphs of its own."""
        return type(None), ()

    def belongs_to(self, model: nn.Module) -> bool:
        """True if these are graphs of that very model."""
        return self._model() is model

    def serves(self, x: SparseTensor) -> bool:
        """True if graphs may take this call: one of known size, and nobody's experiment."""
        at = x.geometry
        if at.count is not None or not at.rows or RECORD.get() is not None:
            return False
        if _has_any_global_hook():
            return False
        if self._given is not None:
            return True
        if not x.features.is_cuda or torch.cuda.is_current_stream_capturing():
            return False
        return not torch._C._len_torch_dispatch_stack() and not torch.cuda.get_sync_debug_mode()


class OwnGraphs(Owned):
    """The graphs of a network's own calls in evaluation, without gradients.

    A call that graphs do not serve is left to the network, without a word.
    """

    def __init__(
        self, model: nn.Module, capture: Capture | None = None, edges: Edges | None = None
    ) -> None:
        super().__init__(model, capture)
        self.runner = Runner(Tensors(edges or Edges()), None, MOST, AFTER, capture)
        self._pause = self._left = 0

    def __call__(self, x: SparseTensor, model: nn.Module, planner: Planner, run: Run) -> Any:
        """The output of a call, or `NOTHING`."""
        if self._left:
            self._left -= 1
            return NOTHING
        runner = self.runner
        runner.reason = None
        try:
            with torch.cuda.device(x.device) if x.features.is_cuda else torch.no_grad():
                output = runner(x, model, planner, run)
        except torch.OutOfMemoryError:
            runner.release()
            torch.cuda.empty_cache()
            output, runner.reason = NOTHING, "there is too little memory"
        except Exception as error:  # the network itself says what is wrong, if it is its own
            runner.release()
            output, runner.reason = NOTHING, f"{type(error).__name__}: {error}"
        if runner.reason is not None:
            self._pause = max(PAUSE, 2 * self._pause)
            self._left = self._pause
        return output
