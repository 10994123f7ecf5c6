"""What graphs of a network's inference and of its steps share: sizes, failures and changes."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from pcnn.graphs import NOTHING
from pcnn.graphs.capture import Capture, NoGraph, Work, aside, failure_of
from pcnn.graphs.fixed_input import Edges, NoFixedSize, Unfit
from pcnn.graphs.outputs import FixedOutput
from pcnn.graphs.snapshot import NetworkSnapshot, hooked
from pcnn.kernels.conv_spec import tf32_allowed
from pcnn.kernels.recorded import RECORD
from pcnn.kernels.streams import own_stream, page_locked
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


class Call(NamedTuple):
    """A call of a network, besides its input."""

    model: nn.Module
    planner: Planner
    run: Run  # of the network, on a planned input
    modes: AutocastOf


class Place:
    """Memory of one size, and the graphs that work there."""

    def __init__(self, memory: Any, run: Run, modes: AutocastOf) -> None:
        self.memory, self._run, self._modes = memory, run, modes
        self.output: Any = None
        self.fixed: FixedOutput
        self.graphs: tuple[Work, ...]
        self.host: Tensor | None = None  # page-locked, for the report of a plan

    def forward(self) -> None:
        """Run the network on the memory."""
        with self._modes.again():
            self.output = self._run(self.memory.tensor)


class Changed(Exception):
    """The network is another one than that of the graphs."""


class Left(Exception):
    """This call is for the network itself, and nothing is wrong with others."""


class Graphs:
    """Graphs of one network, which holds them; no reference back, or neither would be freed.

    A size is captured at its so manyth call, and so many sizes are kept. A size that cannot be
    captured is left to the network for a while. Where more is wrong, as with memory that is
    missing, all graphs are given up, and all calls left. Errors that are not `caught` are those of
    the caller. Calls may come from several threads, and wait for each other.
    """

    planner: Planner  # of calls that bring none
    _device: torch.device

    def __init__(
        self,
        model: nn.Module,
        capture: Capture | None = None,
        edges: Edges | None = None,
        after: int = AFTER,
        most: int = MOST,
        caught: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        self._model, self._given, self.edges = weakref.ref(model), capture, edges or Edges()
        self.after, self.most, self._caught = after, most, caught
        #: why the last call that was to be captured was not
        self.reason: str | None = None
        self.places: OrderedDict[Hashable, Any] = OrderedDict()
        self.replays = self._before = 0  # and those at the last change of the network
        self._lock = threading.RLock()
        self._seen: OrderedDict[Hashable, int] = OrderedDict()
        self._kept: NetworkSnapshot | None = None
        self._capture: Any = None
        self._done: torch.cuda.Event | None = None  # of a call that may be of another stream
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
            self._wait()
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
            except Left:
                pass
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

    def _answer(self, given: Any, model: nn.Module, planner: Planner | None, run: Run) -> Any:
        try:
            if self._kept is None or self._capture is None:
                self._start(model)
            call = Call(model, planner or self.planner, run, AutocastOf(self._device.type))
            found = self._item(given, call)
            if found is None:
                return NOTHING
            own, item = found
            key = own, call.modes.key
            place = self.places.get(key)
            if place is not None:
                self.places.move_to_end(key)
                try:
                    output = self._replayed(place, item, call)
                except Unfit:  # larger memory takes its place
                    pass
                else:
                    self.replays += 1
                    return output
            if not self._is_due(key):
                return NOTHING
            if not self._holds():
                raise Changed
        except Changed:
            self._note_change()
            return NOTHING
        if hooked(model):
            raise NoGraph("a module has hooks, which no graph calls")
        self._wait()
        before = place and self.places.pop(key).memory.room
        place = None
        while len(self.places) >= self.most:
            self.places.popitem(last=False)
        self.places[key], output = self._made(given, item, before, call)
        self.reason = None
        return output

    def _wait(self) -> None:
        """Let other streams read what is given up next."""
        if self._done is not None:
            self._done.synchronize()

    def _start(self, model: nn.Module) -> None:
        """Begin with a network as it is now."""
        raise NotImplementedError

    def _item(self, given: Any, call: Call) -> tuple[Hashable, Any] | None:
        """What memory takes of an input, behind a key; ``None``: it has no place in any.

        Inputs with equal keys share memory.
        """
        raise NotImplementedError

    def _replayed(self, place: Any, item: Any, call: Call) -> Any:
        """The output of an input that fits; else `Unfit`."""
        raise NotImplementedError

    def _made(self, given: Any, item: Any, before: Any, call: Call) -> tuple[Any, Any]:
        """Memory and graphs of a size, also for what memory before had room for, and an output."""
        raise NotImplementedError

    def _holds(self) -> bool:
        return self._kept is not None and self._kept.holds()

    def _captured(self, place: Place, item: Any, *works: Work) -> None:
        """Capture functions behind runs outside, where what is missing is compiled."""
        stream = getattr(self._capture, "stream", None)
        try:
            with aside(stream, self._device):
                place.memory.take(item)
                for work in works + works:
                    work()
            place.graphs = tuple(map(self._capture, works))
            report = place.memory.report
            if report is not None and report.is_cuda:
                place.host = page_locked(len(report), report.device, report.dtype)
        except (RuntimeError, IndexError, ValueError) as error:
            raise NoGraph(failure_of(error)) from error

    def _reading(self, place: Place) -> Callable[[], list[int]]:
        """Copy the report to the host beside the layers; the answer waits for it alone."""
        report: Tensor | None = place.memory.report
        if report is None:
            return list
        if place.host is None:
            return report.tolist
        host, side = place.host, own_stream(self._device, "report")
        side.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(side):
            host.copy_(report, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(side)

        def numbers() -> list[int]:
            arrived.synchronize()
            found: list[int] = host.tolist()
            return found

        return numbers

    def _is_due(self, key: Hashable) -> bool:
        """Count a call of a size that has no graph yet."""
        self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > COUNTED:
            self._seen.popitem(last=False)
        if self._seen[key] < self.after:
            return False
        self._due = key
        return True

    def _note_change(self) -> None:
        """Give up the graphs of a network that has changed."""
        used, self._before = self.replays - self._before, self.replays
        self._changes = 0 if used > CHANGES else self._changes + 1
        self.release()
        if self._changes > CHANGES:
            raise NoGraph("the network changes from call to call")
