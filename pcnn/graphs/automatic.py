"""What graphs of a network's inference and of its steps share: sizes, failures and changes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from pcnn.graphs import NOTHING
from pcnn.graphs.capture import Capture, NoGraph
from pcnn.graphs.sizes import NoFixedSize
from pcnn.graphs.snapshot import NetworkSnapshot
from pcnn.kernels.conv_spec import tf32_allowed
from pcnn.kernels.recorded import RECORD
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Sizes that are kept, and the calls of a size until it is captured.
MOST, AFTER = 8, 3
#: Calls without another attempt after one that failed; twice as many after the next.
PAUSE = 64
#: Sizes that are counted, and changes of the network that leave a graph hardly used.
COUNTED, CHANGES = 256, 8

Run = Callable[[SparseTensor], Any]


class AutocastOf:
    """The modes of torch that decide what a network computes, as they are now."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.dtype = None
        if torch.is_autocast_enabled(device):
            self.dtype = torch.get_autocast_dtype(device)
        exact = torch.are_deterministic_algorithms_enabled()
        self.key = self.dtype, tf32_allowed(), exact

    def again(self) -> torch.autocast:
        """The same, without a cache: a graph would read copies of weights that are freed."""
        given = self.dtype or torch.float16
        return torch.autocast(self.device, given, self.dtype is not None, cache_enabled=False)


class Graphs:
    """Graphs of one network, which holds them; no reference back, or neither would be freed.

    A size is captured at its so manyth call, and so many sizes are kept. A size that cannot be
    captured is left to the network for a while. Where more is wrong, as with memory that is
    missing, all graphs are given up, and all calls left. Errors that are not `caught` are those of
    the caller. Calls may come from several threads, and wait for each other.
    """

    def __init__(
        self,
        model: nn.Module,
        capture: Capture | None = None,
        after: int = AFTER,
        most: int = MOST,
        caught: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        self._model, self._given = weakref.ref(model), capture
        self.after, self.most, self._caught = after, most, caught
        #: why the last call that was to be captured was not
        self.reason: str | None = None
        self.places: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.RLock()
        self._seen: OrderedDict[Hashable, int] = OrderedDict()
        self._kept: NetworkSnapshot | None = None
        self._capture: Any = None
        self._pause = self._left = self._changes = 0

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

    def release(self) -> None:
        """Give up all graphs and their memory."""
        with self._lock:
            self.places.clear()
            self._seen.clear()
            self._kept = self._capture = None

    def __call__(self, given: Any, model: nn.Module, planner: Planner | None, run: Run) -> Any:
        """The output of a call from graphs, or `NOTHING`: it is left to the network."""
        with self._lock:
            if self._left:
                self._left -= 1
                return NOTHING
            self._due: Hashable = None
            try:
                return self._answer(given, model, planner, run)
            except NoFixedSize as error:  # of this input
                self.reason = str(error)
            except self._caught as error:  # the network itself says what is wrong, if it is its own
                self._pause = max(PAUSE, 2 * self._pause)
                self.reason = str(error)
                if isinstance(error, NoGraph) and self._due is not None:
                    self._seen[self._due] = self.after - 1 - self._pause
                    return NOTHING
                self.release()
                torch.cuda.empty_cache()
                self._left = self._pause
                if isinstance(error, torch.OutOfMemoryError):
                    self.reason = "there is too little memory"
            return NOTHING

    def _answer(self, given: Any, model: nn.Module, planner: Any, run: Run) -> Any:
        raise NotImplementedError

    def _is_due(self, key: Hashable) -> bool:
        """Count a call of a size that has no graph yet."""
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > COUNTED:
            self._seen.popitem(last=False)
        if self._seen[key] < self.after:
            return False
        self._due = key
        return True

    def _note_change(self, used: int) -> None:
        """Give up the graphs of a network that has changed, behind so many replays."""
        self._changes = 0 if used > CHANGES else self._changes + 1
        self.release()
        if self._changes > CHANGES:
            raise NoGraph("the network changes from call to call")
