"""A network in inference as CUDA graphs, one pair for every size of inputs.

The first graph makes levels and maps, the second runs the layers. While it does, the host reads how
many sites there were, and sees whether the network has changed: of what did not fit, or belonged to
other weights, nothing is handed out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from pcnn.graphs import NOTHING
from pcnn.graphs.automatic import AFTER, MOST, AutocastOf, Graphs, Run
from pcnn.graphs.capture import Capture, CudaGraphs, NoGraph, Work, aside, failure_of
from pcnn.graphs.memory import Memory, Tensors
from pcnn.graphs.outputs import Copies, Form, Rebuilt, check_agreement, form_of, rows_of
from pcnn.graphs.sizes import Edges, Unfit
from pcnn.graphs.snapshot import NetworkSnapshot, Snapshot, hooked
from pcnn.kernels.beside import own_stream
from pcnn.ops.plan import Planner
from pcnn.tensor import SparseTensor

#: Norms keep their parameters in float32 where a network is run in half precision.
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm)


class Changed(Exception):
    """The network is another one than that of the graphs."""


class Source(Protocol):
    """What kind of inputs a network is called with."""

    def item(self, given: Any, planner: Planner) -> tuple[Hashable, Any] | None:
        """What memory takes of an input, behind a key; ``None``: it has no place in any.

        Inputs with equal keys share memory.
        """

    def tensor(self, given: Any, planner: Planner) -> SparseTensor:
        """The input of the network, planned."""

    def part(self, given: Any) -> Any:
        """A few rows of an input, in whose memory most are spare then."""

    def memory(
        self, item: Any, x: SparseTensor, planners: tuple[Planner, Planner], old: Memory | None
    ) -> Memory:
        """Memory for a planned input, and for all that the old one held.

        The first planner has planned the input, the second belongs to the network of the graphs.
        """


class Place:
    """Memory of one size, and the graphs that work there."""

    def __init__(self, memory: Memory, net: nn.Module, modes: AutocastOf) -> None:
        self.memory, self._net, self._modes = memory, net, modes
        self.output: Any = None
        self.form: Form = []
        self.graphs: tuple[Work, Work] | None = None
        self.host: torch.Tensor | None = None  # page-locked, for the report
        self.calls = 0

    def layers(self) -> None:
        """Run the network on the memory."""
        with self._modes.again():
            self.output = self._net(self.memory.tensor)


class Runner(Graphs):
    """Calls of one network without gradients, from any source and several streams."""

    def __init__(
        self,
        model: nn.Module,
        source: Source,
        dtype: torch.dtype | None = None,
        capture: Capture | None = None,
        after: int = AFTER,
        most: int = MOST,
        caught: tuple[type[Exception], ...] = (Exception,),
    ) -> None:
        super().__init__(model, capture, after, most, caught)
        self.source, self.dtype = source, dtype
        self._done: torch.cuda.Event | None = None

    def adopt(self, model: nn.Module) -> None:
        """Take the network as it is now: what was captured before belongs to other weights."""
        with self._lock:
            self.release()
            tensors = [*model.parameters(), *model.buffers()]
            self._device = tensors[0].device
            with torch.inference_mode(False), torch.no_grad():
                self.net = own_network(model, self.dtype)
            planner = getattr(self.net, "planner", None)
            self.planner = planner if isinstance(planner, Planner) else Planner(self.net)
            if Snapshot.is_possible(tensors):
                self._kept = NetworkSnapshot(model)

    def current(self, model: nn.Module) -> nn.Module:
        """The copy of a network as it is now."""
        with self._lock:
            if not self._holds():
                self.adopt(model)
            return self.net

    def _start(self) -> None:
        """What graphs need besides."""
        device = self._device
        if self._kept is None:
            raise NoGraph("its parameters are of a kind whose changes are not seen")
        if device.type != "cuda" and self._given is None:
            raise NoGraph(f"CUDA graphs need a CUDA device, but the network is on {device}")
        self._capture = CudaGraphs(device) if self._given is None else self._given

    def release(self) -> None:
        """Give up all graphs and their memory."""
        with self._lock:
            if self._done is not None:
                self._done.synchronize()  # one on another stream may read memory that is freed
            super().release()

    def _answer(self, given: Any, model: nn.Module, planner: Planner | None, run: Run) -> Any:
        if self._kept is None:
            self.adopt(model)
        if self._capture is None:
            self._start()
        planner = planner or self.planner
        found = self.source.item(given, planner)
        if found is None:
            return NOTHING
        own, item = found
        modes = AutocastOf(self._device.type)
        key = own, modes.key
        place = self.places.get(key)
        if place is None:
            if not self._is_due(key):
                return NOTHING
            if not self._holds():
                self.release()
                return NOTHING
        if place is not None:
            self.places.move_to_end(key)
            try:
                output = self._replayed(place, item)
            except Unfit:  # of the eager call below there are sizes
                pass
            except Changed:
                self._note_change(place.calls)
                return NOTHING
            else:
                place.calls += 1
                return output
        return self._made(key, given, item, planner, run, modes)

    def _holds(self) -> bool:
        return self._kept is not None and self._kept.holds()

    def _made(
        self, key: Hashable, given: Any, item: Any, planner: Planner, run: Run, modes: AutocastOf
    ) -> Any:
        """The eager output of an input whose memory and graphs are made besides."""
        x = self.source.tensor(given, planner)
        wanted = run(x)
        if hooked(self.net):
            raise NoGraph("a module has hooks, which no graph calls")
        old = self.places.pop(key, None)
        if self._done is not None:
            self._done.synchronize()  # other streams may read what is given up below
        with torch.inference_mode(False), torch.no_grad():
            planners = planner, self.planner
            own = x if self.dtype is None else x.replace(x.features.to(self.dtype))
            memory = self.source.memory(item, own, planners, old.memory if old else None)
            del old
            place = Place(memory, self.net, modes)
            try:
                self._prepare(place, item)
                place.graphs = self._capture(memory.plan), self._capture(place.layers)
            except (RuntimeError, IndexError, ValueError) as error:
                raise NoGraph(failure_of(error)) from error
        wanted_sites = self._sites_of(x)
        place.form = form_of(place.output, memory.levels, wanted, wanted_sites)
        check_agreement(self._replayed(place, item), wanted)
        self._check_part(place, given, planner, run)
        self.places[key] = place
        while len(self.places) > self.most:
            self.places.popitem(last=False)
        self.reason = None
        return wanted

    def _check_part(self, place: Place, given: Any, planner: Planner, run: Run) -> None:
        """Hold a graph against the network where most rows are spare: none may be looked at."""
        part = self.source.part(given)
        x = self.source.tensor(part, planner)
        found = self.source.item(part, planner)
        try:
            if found is None:
                raise Unfit
            check_agreement(self._replayed(place, found[1]), run(x))
        except Unfit:  # fewer rows may be tiled in other sections
            place.memory.check()

    def _sites_of(self, x: SparseTensor) -> list[Any]:
        found: list[Any] = [x.geometry]
        for parent, direction, kernel in self.planner.recipe_on(x.geometry).levels:
            finer = found[parent]
            found.append(None if finer is None else finer.level(kernel, direction == "down"))
        return found

    def _prepare(self, place: Place, given: Any) -> None:
        """Run once outside, where what is missing is compiled, and levels are seen."""
        memory, stream = place.memory, getattr(self._capture, "stream", None)
        with aside(stream, self._device):
            memory.take(given)
            memory.plan()
            place.layers()
            if memory.report is not None and stream is not None:
                report = memory.report
                place.host = torch.empty(report.shape, dtype=report.dtype, pin_memory=True)

    def _replayed(self, place: Place, given: Any) -> Any:
        """The output of an input that fits; else `Unfit`."""
        memory, graphs = place.memory, place.graphs
        assert graphs is not None
        on_device = self._device.type == "cuda"
        stream = torch.cuda.current_stream(self._device) if on_device else None
        if stream is not None and self._done is not None:
            stream.wait_event(self._done)  # of the call before, which may be of another stream
        wanted = {level for level in place.form if level is not None}
        memory.take(given)
        try:
            graphs[0]()
            reading = self._reading(place, stream)
            graphs[1]()
            if not self._holds():  # looked at while the device computes
                raise Changed
            copies = Copies()
            sites = memory.sites(given, reading(), wanted, copies)
            rows = rows_of(place.output, place.form, sites)
            found = iter([copies.of(one, number) for one, number in rows])
            copies.fill()
        finally:
            if stream is not None:
                self._done = self._done or torch.cuda.Event()
                self._done.record(stream)
        return Rebuilt(found, place.form, sites).of(place.output)

    def _reading(self, place: Place, stream: Any) -> Callable[[], list[int]]:
        """Copy the report to the host beside the layers; the answer waits for it alone."""
        report, host = place.memory.report, place.host
        if report is None:
            return list
        if stream is None or host is None:
            return report.tolist  # type: ignore[no-any-return]
        side = own_stream(self._device, "report")
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            host.copy_(report, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(side)

        def numbers() -> list[int]:
            arrived.synchronize()
            found: list[int] = host.tolist()
            return found

        return numbers


class OwnGraphs(Runner):
    """The graphs of a network's own calls in evaluation, on sparse tensors."""

    def __init__(
        self, model: nn.Module, capture: Capture | None = None, edges: Edges | None = None
    ) -> None:
        super().__init__(model, Tensors(edges or Edges()), None, capture)

    def __call__(
        self, given: SparseTensor, model: nn.Module, planner: Planner | None, run: Run
    ) -> Any:
        """See `Graphs`; on the device of the input."""
        with torch.cuda.device(given.device) if given.features.is_cuda else nullcontext():
            return super().__call__(given, model, planner, run)


def own_network(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """A copy of a network, on the same weights or on copies in a dtype; norms keep theirs.

    Layers keep tensors computed from weights (`FoldedNorm`) and drop them when the network is
    switched to training or back. Graphs read them at every replay, so they belong to a copy that
    nothing else switches.
    """
    if dtype is None:
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        return copy.deepcopy(model, shared)
    own = copy.deepcopy(model)
    for module in own.modules():
        if not isinstance(module, _NORMS):
            module._apply(lambda t: t.to(dtype) if t.is_floating_point() else t, recurse=False)
    return own
